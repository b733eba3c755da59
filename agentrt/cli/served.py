"""Whether a team's adapters can be served, and under its scheme, as far as files tell without a backbone's weights."""

import torch

from agentrt.config.problems import in_order
from agentrt.config.team import Team, check_scheme
from agentrt.errors import AdapterError, BackboneError, ConfigError, Problem, SchemeError
from agentrt.model.adapters import AdapterSet
from agentrt.model.hashing import hash_folder
from agentrt.model.peft_folder import AdapterFile, check_adapter, read_adapter
from agentrt.model.ridge import load_maps
from agentrt.model.shape import StoredBackbone, find_backbone
from agentrt.schemes import SCHEMES, Scheme
from agentrt.schemes.make import make_scheme


def require_served(team: Team) -> None:
    """Raises ConfigError with every problem that `check_names` and `check_served` find, before a weight is loaded;
    BackboneError for a base that is no model."""
    check_names(team)
    if problems := check_served(team, find_backbone(team.base.model)):
        raise ConfigError(in_order(problems))


def check_names(team: Team) -> None:
    """Raises ConfigError for a scheme that does not exist, or for options that it does not have."""
    if problems := check_scheme(team, {name: kind.option_names() for name, kind in SCHEMES.items()}):
        raise ConfigError(problems)


def backbone_of(team: Team) -> StoredBackbone | None:
    """The team's backbone as it lies on this machine, or None where it must be fetched first.

    Raises ConfigError where it is no model, or one that is not served.
    """
    try:
        return find_backbone(team.base.model)
    except BackboneError as error:
        raise ConfigError([team.problem(("base", "model"), str(error))]) from None


def check_served(team: Team, backbone: StoredBackbone | None) -> list[Problem]:
    """Scheme options with values that the scheme refuses; adapters with features, targets or ranks that are not served,
    or of a kind that the scheme does not take. The names of scheme and options are checked already.

    With a backbone, adapters are also held against its layers and widths, and the scheme's options against both.
    """
    problems: list[Problem] = []
    files: dict[str, AdapterFile] = {}
    invocations: dict[str, tuple[int, ...]] = {}
    for role, folder in team.adapters().items():
        try:
            if backbone is None:
                invocations[role] = check_adapter(role, folder)
            else:
                names, widths = backbone.names, backbone.projections
                files[role] = read_adapter(role, folder, widths, base_names=names, dtype=torch.float32)
                invocations[role] = files[role].invocation
        except AdapterError as error:
            problems.append(team.problem(("roles", role, "adapter"), str(error)))
    try:
        scheme = make_scheme(team.scheme.name, team.scheme.options)
    except SchemeError as error:
        return [*problems, team.problem(("scheme",), str(error))]
    activated = {role: tokens for role, tokens in invocations.items() if tokens}
    for role in invocations:
        try:
            scheme.allow_kinds([role], activated)
        except SchemeError as error:
            problems.append(team.problem(("roles", role, "adapter"), str(error)))
    if backbone is not None and not problems:
        try:
            _fit(scheme, AdapterSet.of(files), backbone)
        except SchemeError as error:
            problems.append(team.problem(("scheme",), str(error)))
    return problems


def _fit(scheme: Scheme, adapters: AdapterSet, backbone: StoredBackbone) -> None:
    """Hold a scheme against backbone and adapters, as an engine does when it opens. Raises SchemeError."""
    digest = hash_folder(backbone.folder)
    fitted = scheme.fitted(digest, adapters.hashes)
    fitted.check(backbone.shape.layout(adapters, torch.float32))
    if fitted.maps_file is not None:
        load_maps(fitted.maps_file, adapters.hashes, backbone_hash=digest, device=torch.device("cpu"))
