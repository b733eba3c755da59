"""Whether a team's adapters can be served, and under its scheme, as far as files tell without a backbone's weights."""

import torch

from agentrt.config.team import Team
from agentrt.errors import AdapterError, BackboneError, Problem, SchemeError
from agentrt.model.adapters import AdapterSet
from agentrt.model.hashing import hash_folder
from agentrt.model.peft_folder import check_adapter
from agentrt.model.ridge import load_maps
from agentrt.model.shape import StoredBackbone, find_backbone
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme


def backbone_of(team: Team) -> StoredBackbone | Problem | None:
    """The team's backbone as it lies on this machine, what is wrong with it, or None where it must be fetched first."""
    try:
        return find_backbone(team.base.model)
    except BackboneError as error:
        return team.problem(("base", "model"), str(error))


def check_served(team: Team, backbone: StoredBackbone | None) -> list[Problem]:
    """Scheme options with values that the scheme refuses; adapters with features, targets or ranks that are not served,
    or of a kind that the scheme does not take. The names of scheme and options are checked already.

    With a backbone, adapters are also held against its layers and widths, and the scheme's options against both.
    """
    problems: list[Problem] = []
    invocations: dict[str, tuple[int, ...]] = {}
    for role in team.adapters():
        try:
            invocations[role] = _invocation(team, role, backbone)
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
            _fit(scheme, team, backbone)
        except SchemeError as error:
            problems.append(team.problem(("scheme",), str(error)))
    return problems


def _invocation(team: Team, role: str, backbone: StoredBackbone | None) -> tuple[int, ...]:
    """The tokens that activate a role's adapter, none of plain LoRA. Raises AdapterError."""
    folder = team.adapters()[role]
    if backbone is None:
        return check_adapter(role, folder)
    return _load(team, backbone, role).invocations.get(role, ())


def _fit(scheme: Scheme, team: Team, backbone: StoredBackbone) -> None:
    """Hold a scheme against backbone and adapters, as an engine does when it opens. Raises SchemeError."""
    adapters, digest = _load(team, backbone, *team.adapters()), hash_folder(backbone.folder)
    fitted = scheme.fitted(digest, adapters.hashes)
    fitted.check(backbone.shape.layout(adapters, torch.float32))
    if fitted.maps_file is not None:
        load_maps(fitted.maps_file, adapters.hashes, backbone_hash=digest, device=torch.device("cpu"))


def _load(team: Team, backbone: StoredBackbone, *roles: str) -> AdapterSet:
    folders = team.adapters()
    wanted = {role: folders[role] for role in roles}
    return AdapterSet.load(wanted, backbone.projections, base_names=backbone.names, dtype=torch.float32)
