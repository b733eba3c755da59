"""Which roles are trained, over whose contexts, and whether the team's scheme will take the adapters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from agentrt.config.team import Team
from agentrt.errors import ConfigError, Problem, UsageError
from agentrt.model.trainable import LoraSettings
from agentrt.schemes.make import make_scheme
from agentrt.training.parallel import share_threads
from agentrt.training.role import RoleJob
from agentrt.training.settings import ACTIVATED_CONTEXTS, OWN_CONTEXT, READER_CONTEXTS, SHARED_CONTEXTS

Contexts = Literal["own", "neutral", "shared"]
"""Who processes what a role reads while it learns, beside itself: nobody else; the model with adapters off; that, and
the role that starts the flow, which must then be trained before the others."""


def chosen_roles(team: Team, wanted: Sequence[str]) -> list[str]:
    """`wanted`, or all roles with an adapter; the one that starts the flow first.

    Raises UsageError for a role that the team has not, ConfigError (file:line) where one of `wanted`, or every role,
    has no adapter to train.
    """
    adapters, first = team.adapters(), first_role(team)
    if unknown := [role for role in wanted if role not in team.roles]:
        raise UsageError(f"--role: the team has no role {', '.join(unknown)}; it has: {', '.join(team.roles)}")
    if lacking := [role for role in wanted or ([] if adapters else team.roles) if role not in adapters]:
        raise ConfigError([_nothing_to_train(team, role) for role in lacking])
    return sorted(dict.fromkeys(wanted or adapters), key=lambda role: role != first)


def _nothing_to_train(team: Team, role: str) -> Problem:
    return team.problem(
        ("roles", role, "adapter"),
        f"{role} has no adapter to train: name a folder in place of none, as `adapter: adapters/{role}`, and train "
        f"with --adapters {team.root / 'adapters'}",
    )


def first_role(team: Team) -> str:
    """The role that starts the flow."""
    return team.flow.role_nodes()[team.flow.start].role


def check_fit(team: Team, *, shared_a: bool, activated: bool) -> None:
    """Raise ConfigError (file:line) where the team's scheme would refuse the adapters that are about to be trained."""
    scheme = make_scheme(team.scheme.name, team.scheme.options)
    fault = ""
    if scheme.activated and not activated:
        fault = "takes activated LoRA only; train with --activated"
    elif activated and not scheme.activated:
        fault = "takes no activated LoRA; train without --activated"
    elif scheme.same_a and not shared_a:
        fault = "takes adapters with the same A only; train with --shared-a"
    if fault:
        problem = team.problem(("scheme", "name"), f"the scheme {scheme.name} {fault}, or for another --scheme")
        raise ConfigError([problem])


def choose_contexts(asked: Contexts | None, lora: LoraSettings, *, activated: bool) -> Contexts:
    """What was asked for, or what suits the adapters. Raises UsageError where the two do not go together."""
    keys = "k_proj" in lora.targets
    if asked is not None and activated:
        raise UsageError("--contexts: activated LoRA always reads what the model left with adapters off; leave it out")
    if asked in ("neutral", "shared") and keys:
        raise UsageError(f"--contexts {asked} is for adapters that leave k_proj alone; train with --contexts own")
    return asked or ("own" if keys else "shared")


def make_jobs(
    template: RoleJob,
    roles: Sequence[str],
    first: str,
    contexts: Contexts,
    invocations: Mapping[str, tuple[int, ...]],
    *,
    at_once: int,
    cores: int,
) -> list[RoleJob]:
    """A job for each of `roles`, which `template` holds what they have in common of; its `start` holds a folder a role.

    `invocations` are those of activated LoRA. Threads are shared out if the template names none and jobs run at once.
    """
    jobs = []
    for role in roles:
        reads = contexts == "shared" and role != first and (first in roles or (template.adapters / first).is_dir())
        mix = SHARED_CONTEXTS if reads else READER_CONTEXTS
        if role in invocations:
            reads, mix = False, ACTIVATED_CONTEXTS
        elif contexts == "own" or (contexts == "shared" and not reads and role != first):
            mix = OWN_CONTEXT
        jobs.append(
            replace(
                template,
                role=role,
                lora=replace(template.lora, invocation=invocations.get(role, ())),
                settings=replace(template.settings, contexts=mix),
                other=first if reads else None,
                start=template.start / role if template.start is not None else None,
            )
        )
    if template.threads is None and at_once > 1:
        threads = share_threads(jobs, at_once, cores)
        jobs = [replace(job, threads=each) for job, each in zip(jobs, threads, strict=True)]
    return jobs
