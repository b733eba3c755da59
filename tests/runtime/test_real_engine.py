"""Episodes on the real engine, over a tiny random model: constraints alone make its actions well formed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrt.engine import Engine, EngineConfig
from agentrt.errors import ForkedError, UsageError
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import RunFinished
from agentrt.schemes.make import make_scheme
from agentrt.testing import ByteTokenizer
from tests.forks import in_child

from .conftest import MakeTeam

SAMPLED = ("adapters/plan}", "adapters/plan, sampling: {temperature: 1.0, max_new_tokens: 8}}")
SHORT = ("adapters/action}", "adapters/action, sampling: {temperature: 1.0, max_new_tokens: 8}}")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    model = tiny_model("llama", vocab_size=256, max_position_embeddings=2048)
    folders = {name: tiny_adapter(model, tmp_path / name, seed=seed) for seed, name in enumerate(("plan", "action"))}
    backbone = Backbone(model)
    adapters = backbone.load_adapters(folders)
    tokenizer: Any = ByteTokenizer()  # the engine itself never reads text
    with Engine(backbone, adapters, make_scheme("rebase_shared"), tokenizer=tokenizer) as engine:
        yield engine


def test_an_episode_of_a_random_model_is_well_formed_and_repeatable(
    engine: Engine, make_team: MakeTeam, corpus: Path
) -> None:
    team = make_team(
        SAMPLED, SHORT, ("reflect: {adapter: none}", "reflect: {adapter: none, sampling: {max_new_tokens: 8}}")
    )
    with Runtime(team, engine=engine, corpus=corpus, seed=3) as rt:
        results = [rt.run("Where was the director of Jaws born?") for _ in range(2)]
    first, second = results
    assert first.token_ids == second.token_ids
    assert first.error is None
    assert first.steps >= 1
    known = {"Search", "Retrieve", "Lookup", "Finish"}
    assert {action.action for action in first.actions} <= known
    assert sum(usage.turns for usage in first.usage.values()) == sum(span.path is not None for span in first.spans)
    assert all(usage.kv_bytes > 0 and usage.ttft_s > 0 for usage in first.usage.values())
    assert first.usage["plan"].reused_tokens > 0
    assert engine.stats().sessions == 0
    engine.check_integrity()


def test_closing_the_iterator_stops_the_engine_and_frees_the_session(
    engine: Engine, make_team: MakeTeam, corpus: Path
) -> None:
    team = make_team(("adapters/plan}", "adapters/plan, sampling: {max_new_tokens: 1500}}"))
    with Runtime(team, engine=engine, corpus=corpus) as rt:
        events = rt.stream("q")
        next(event for event in events if event.event == "token")
        events.close()  # type: ignore[attr-defined]  # it is a generator
    stats = engine.stats()
    assert (stats.sessions, stats.preambles_kept) == (0, 1)
    row_bytes = sum(plane.spec.row_bytes for plane in engine._store.planes.values())
    assert stats.held_bytes == len(b"Answer the question.\n") * row_bytes, "the preamble, for the next session"


def test_a_turn_that_would_not_fit_the_context_is_not_started(
    engine: Engine, make_team: MakeTeam, corpus: Path
) -> None:
    with Runtime(make_team(("max_steps: 6", "max_context: 120")), engine=engine, corpus=corpus) as rt:
        events = list(rt.stream("q", tokens=False))
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    assert finished.status == "limit:context"


def test_a_question_that_can_never_fit_ends_at_the_limit_and_the_engine_goes_on(
    engine: Engine, make_team: MakeTeam, corpus: Path
) -> None:
    team = make_team(SAMPLED, SHORT, ("max_steps: 6", "max_steps: 1"))
    with Runtime(team, engine=engine, corpus=corpus) as rt:
        long = rt.run("why " * 5_000)
        assert (long.status, long.answer, long.usage) == ("limit:context", None, {})
        assert rt.run("Where was she born?").usage["plan"].turns > 0
    assert engine.stats().sessions == 0


def test_a_team_whose_adapter_the_engine_lacks_is_told_so(engine: Engine, make_team: MakeTeam, corpus: Path) -> None:
    team = make_team(("reflect: {adapter: none}", "reflect: {adapter: adapters/reflect}"))
    with (
        pytest.raises(UsageError, match="no adapter 'reflect' for role 'reflect'"),
        Runtime(team, engine=engine, corpus=corpus) as rt,
    ):
        rt.run("q")
    assert engine.health().ok


def test_health_tells_of_turns_that_wait_for_room(engine: Engine, make_team: MakeTeam, corpus: Path) -> None:
    scheme, limits = make_scheme("pre_lr_shared"), EngineConfig(kv_budget_tokens=100)
    small = Engine(engine.backbone, engine.adapters, scheme, config=limits)
    with small, Runtime(make_team(SAMPLED, SHORT), engine=small, corpus=corpus) as rt:
        holder, other = small.session(), small.session()
        _ = holder.turn("plan", [1] * 60, Sampling(max_new_tokens=2)).result
        waiter = other.turn("plan", [1] * 50, Sampling(max_new_tokens=2))
        while not small.stats().waited_for_room:
            time.sleep(0.001)
        state = rt.health().engine
        assert state is not None
        assert (state.waiting, state.waiting_for_room) == (1, 1)
        holder.close()
        assert len(waiter.result.token_ids) == 2
        state = rt.health().engine
        assert state is not None
        assert state.waiting_for_room == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_run_in_a_forked_process_is_a_typed_error_and_the_parent_goes_on(
    engine: Engine, make_team: MakeTeam, corpus: Path
) -> None:
    with Runtime(make_team(SAMPLED, SHORT), engine=engine, corpus=corpus) as rt:

        def child() -> str:
            try:
                rt.run("q")
            except ForkedError as error:
                rt.close()
                return f"{error} {rt.health().status}"
            return "it ran"

        said = in_child(child)
        assert "load an engine in each process" in said
        assert said.endswith("closed")
        assert rt.run("q").error is None
