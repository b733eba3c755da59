"""Whether a team's adapters can be served, and under its scheme, as far as files tell without a weight loaded."""

from agentrt.config.team import Team
from agentrt.errors import AdapterError, Problem, SchemeError
from agentrt.model.peft_folder import check_adapter
from agentrt.schemes.make import make_scheme


def check_served(team: Team) -> list[Problem]:
    """Scheme options with values that the scheme refuses; adapters with features, targets or ranks that are not served,
    or of a kind that the scheme does not take. The names of scheme and options are checked already."""
    problems: list[Problem] = []
    invocations: dict[str, tuple[int, ...]] = {}
    sound: list[str] = []
    for role, folder in team.adapters().items():
        try:
            invocation = check_adapter(role, folder)
        except AdapterError as error:
            problems.append(team.problem(("roles", role, "adapter"), str(error)))
            continue
        sound.append(role)
        if invocation:
            invocations[role] = invocation
    try:
        scheme = make_scheme(team.scheme.name, team.scheme.options)
    except SchemeError as error:
        problems.append(team.problem(("scheme",), str(error)))
        return problems
    for role in sound:
        try:
            scheme.allow_kinds([role], invocations)
        except SchemeError as error:
            problems.append(team.problem(("roles", role, "adapter"), str(error)))
    return problems
