"""Who reads whose context, who waits for whom, and which adapters a team's scheme will not take."""

from pathlib import Path

import pytest

from agentrt.builtin import configs_dir
from agentrt.config.team import Override, Team
from agentrt.errors import ConfigError, UsageError
from agentrt.model.trainable import LoraSettings
from agentrt.training.parallel import share_threads
from agentrt.training.plan import Contexts, check_fit, choose_contexts, chosen_roles, make_jobs
from agentrt.training.role import RoleJob
from agentrt.training.settings import (
    ACTIVATED_CONTEXTS,
    OWN_CONTEXT,
    READER_CONTEXTS,
    SHARED_CONTEXTS,
    TrainSettings,
)

QV, QKVO = LoraSettings(), LoraSettings(targets=("q_proj", "k_proj", "v_proj", "o_proj"))
ROLES = ["plan", "action", "reflect"]


def jobs(tmp_path: Path, contexts: Contexts, *, roles: list[str] = ROLES, at_once: int = 2) -> list[RoleJob]:
    template = RoleJob("", "tiny", tmp_path, tmp_path / "adapters", QV, TrainSettings())
    return make_jobs(template, roles, "plan", contexts, {}, at_once=at_once, cores=2)


def test_others_read_what_the_first_role_leaves_and_wait_for_it(tmp_path: Path) -> None:
    plan, action, reflect = jobs(tmp_path, "shared")
    assert (plan.other, plan.settings.contexts) == (None, READER_CONTEXTS)
    for job in (action, reflect):
        assert (job.other, job.settings.contexts) == ("plan", SHARED_CONTEXTS)
    assert [job.threads for job in (plan, action, reflect)] == [2, 1, 1]


def test_without_the_first_roles_adapter_contexts_are_their_own(tmp_path: Path) -> None:
    [action] = jobs(tmp_path, "shared", roles=["action"])
    assert (action.other, action.settings.contexts) == (None, OWN_CONTEXT)
    (tmp_path / "adapters" / "plan").mkdir(parents=True)
    [action] = jobs(tmp_path, "shared", roles=["action"])
    assert (action.other, action.settings.contexts) == ("plan", SHARED_CONTEXTS)


@pytest.mark.parametrize(("contexts", "mix"), [("own", OWN_CONTEXT), ("neutral", READER_CONTEXTS)])
def test_nobody_waits_where_contexts_are_nobodys(tmp_path: Path, contexts: Contexts, mix: object) -> None:
    for job in jobs(tmp_path, contexts):
        assert (job.other, job.settings.contexts, job.threads) == (None, mix, 1)


def test_threads_are_shared_by_those_that_run_side_by_side(tmp_path: Path) -> None:
    every = jobs(tmp_path, "shared")
    assert share_threads(every, 2, 8) == [8, 4, 4]
    assert share_threads(every, 3, 2) == [2, 1, 1]
    assert [job.threads for job in jobs(tmp_path, "shared", at_once=1)] == [None] * 3, "torch chooses for one at a time"


def test_activated_adapters_read_a_neutral_context_and_nothing_else(tmp_path: Path) -> None:
    template = RoleJob("", "tiny", tmp_path, tmp_path / "adapters", QV, TrainSettings())
    invoked = {"plan": (7,), "action": (8, 9)}
    plan, action = make_jobs(template, ["plan", "action"], "plan", "shared", invoked, at_once=2, cores=2)
    assert (action.other, action.settings.contexts, action.lora.invocation) == (None, ACTIVATED_CONTEXTS, (8, 9))
    assert plan.lora.invocation == (7,)


def test_contexts_that_do_not_go_with_the_adapters_are_refused() -> None:
    assert choose_contexts(None, QV, activated=False) == "shared"
    assert choose_contexts(None, QKVO, activated=False) == "own"
    with pytest.raises(UsageError, match="--contexts shared is for adapters that leave k_proj alone"):
        choose_contexts("shared", QKVO, activated=False)
    with pytest.raises(UsageError, match="activated LoRA always reads"):
        choose_contexts("own", QV, activated=True)


def test_roles_are_known_and_the_first_comes_first() -> None:
    team = Team.load("search", need_adapters=False)
    assert chosen_roles(team, ["reflect", "plan"]) == ["plan", "reflect"]
    assert chosen_roles(team, []) == ROLES
    with pytest.raises(UsageError, match=r"no role critic; it has: plan, action, reflect"):
        chosen_roles(team, ["critic"])


def test_roles_without_an_adapter_are_named_with_the_line_and_the_fix() -> None:
    starter = configs_dir() / "starter" / "team.yaml"
    with pytest.raises(ConfigError) as caught:
        chosen_roles(Team.load(starter), [])
    assert [problem.message.split()[0] for problem in caught.value.problems] == ROLES
    assert [problem.line for problem in caught.value.problems] == [14, 15, 16]
    assert "`adapter: adapters/plan`, and train with --adapters" in caught.value.problems[0].message
    mixed = Team.load(starter, overrides=[Override(("roles", "plan", "adapter"), "p", "me")], need_adapters=False)
    assert chosen_roles(mixed, []) == ["plan"], "none is a choice where others have one"
    with pytest.raises(ConfigError, match="reflect has no adapter to train"):
        chosen_roles(mixed, ["plan", "reflect"])


@pytest.mark.parametrize(
    ("scheme", "shared_a", "activated", "fault"),
    [
        ("base_lr_shared", False, False, "same A only; train with --shared-a"),
        ("alora", False, False, "activated LoRA only; train with --activated"),
        ("pre_lr_shared", False, True, "no activated LoRA; train without --activated"),
        ("base_lr_shared", True, True, "no activated LoRA"),
    ],
)
def test_adapters_that_the_scheme_would_refuse_are_not_trained(
    scheme: str, shared_a: bool, activated: bool, fault: str, tmp_path: Path
) -> None:
    text = (Path(Team.load("search").source)).read_text(encoding="utf-8").replace("pre_lr_shared", scheme)
    (tmp_path / "team.yaml").write_text(text, encoding="utf-8")
    team = Team.load(tmp_path / "team.yaml", need_adapters=False)
    with pytest.raises(ConfigError, match=fault) as caught:
        check_fit(team, shared_a=shared_a, activated=activated)
    [problem] = caught.value.problems
    assert (problem.file, problem.line) == (str(tmp_path / "team.yaml"), 5)


@pytest.mark.parametrize(
    ("scheme", "shared_a", "activated"),
    [("base_lr_shared", True, False), ("alora", False, True), ("pre_lr_shared", True, False)],
)
def test_adapters_that_it_takes_are(scheme: str, shared_a: bool, activated: bool) -> None:
    named = Override(("scheme",), {"name": scheme}, "the test")
    check_fit(Team.load("search", overrides=[named], need_adapters=False), shared_a=shared_a, activated=activated)
