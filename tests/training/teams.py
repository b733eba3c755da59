"""The search team with limits for a tokenizer of single bytes."""

from agentrt.config.team import Override, Team


def search_team(**limits: int) -> Team:
    """The shipped team, adapters or not; `limits` are more of its limits."""
    values = [
        Override(("roles", role, "sampling", "max_new_tokens"), 220, "the test")
        for role in ("plan", "action", "reflect")
    ]
    values.append(Override(("limits", "max_observation_tokens"), 900, "the test"))
    values += [Override(("limits", name), value, "the test") for name, value in limits.items()]
    return Team.load("search", overrides=values, need_adapters=False)
