"""Runs that go on after an interruption: the same tokens, whatever the scheme and wherever they were left."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentrt.config.flow import Emits
from agentrt.errors import UsageError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import RunFinished, RunResumed, RunStarted, Status, ToolFinished, TurnFinished
from agentrt.runtime.options import CancelToken
from agentrt.runtime.result import EpisodeResult
from agentrt.runtime.runlog import EVENTS_FILE, RESULT_FILE, read_result, read_run
from agentrt.schemes import SCHEMES
from agentrt.testing import ScriptedEngine
from tests.crew import CORPUS, EVERY_SCHEME, SEARCHES, short_team, tiny_engine
from tests.kills import DEATHS, QUESTION, boundaries, deadly_tools, small_engine
from tests.watched import Moment, Watched

from .conftest import MakeTeam


def test_every_scheme_is_among_those_that_are_interrupted() -> None:
    assert {scheme.partition(":")[0] for scheme in EVERY_SCHEME} == set(SCHEMES)


@pytest.mark.parametrize("scheme", EVERY_SCHEME)
def test_from_turn_boundaries_the_tokens_are_those_of_the_whole_run(tmp_path: Path, scheme: str) -> None:
    left: list[Path] = []
    runs, short = tmp_path / "runs", short_team(SEARCHES, max_steps=2)

    def leave(moment: Moment) -> None:
        """What a process that dies here leaves behind."""
        if moment.what == "turn" and moment.turn % 3 == 2:
            left.append(Path(shutil.copytree(runs / "whole", tmp_path / f"left{len(left)}")))

    with (
        tiny_engine(tmp_path / "weights", scheme) as engine,
        Runtime(
            short_team(SEARCHES, max_steps=2),
            engine=Watched(engine, leave),
            corpus=CORPUS,
            out=tmp_path / "runs",
            seed=3,
        ) as rt,
    ):
        whole = rt.run(QUESTION, run_id="whole")
    assert len(left) >= 2
    with (
        tiny_engine(tmp_path / "weights", scheme) as engine,
        Runtime(short, engine=engine, corpus=CORPUS) as rt,
    ):
        for folder in left:
            again = rt.resume(folder)
            assert again.token_ids == whole.token_ids, folder.name
            assert (again.status, again.actions) == (whole.status, whole.actions)
            assert json.loads((folder / RESULT_FILE).read_text())["status"] == whole.status
        engine.check_integrity()


KILLED = [
    ("pre_lr_shared", False),
    pytest.param("rebase_shared:lp", False, marks=pytest.mark.slow),
    *(pytest.param(scheme, True, marks=pytest.mark.slow) for scheme in EVERY_SCHEME),
]


@pytest.mark.parametrize(("scheme", "every_boundary"), KILLED)
def test_after_kill_9_the_tokens_are_those_of_the_whole_run(tmp_path: Path, scheme: str, every_boundary: bool) -> None:
    flags = ["--every"] if every_boundary else []
    subprocess.run([sys.executable, "-m", "tests.kills", str(tmp_path), scheme, *flags], check=True, timeout=550)
    runs = tmp_path / "runs"
    whole = EpisodeResult.model_validate_json((runs / "whole" / RESULT_FILE).read_text())
    killed = {*DEATHS, *(boundaries(runs) if every_boundary else ())}
    assert {folder.name for folder in runs.iterdir()} == {*killed, "whole"}
    with (
        small_engine(tmp_path, scheme) as engine,
        Runtime(short_team(SEARCHES), engine=engine, tools=deadly_tools(), out=runs) as rt,
    ):
        for run_id in killed:
            assert not (runs / run_id / RESULT_FILE).exists()
            again = rt.resume(run_id)
            assert again.token_ids == whole.token_ids, run_id
            assert (again.seed, again.status, again.actions) == (whole.seed, whole.status, whole.actions)
            assert read_result(runs / run_id) == again


SCRIPT = [
    *("A.", "Search", "jaws film", "B.", "Retrieve", "Jaws (film)", "C.", "Lookup", "shark"),
    *("E.", "Finish", "shark", "F.", "right"),
]


def stopped(make_team: MakeTeam, corpus: Path, out: Path, turn: int) -> None:
    """A run `one` that was cancelled when its turn began to write."""
    cancel, texts = CancelToken(), iter(enumerate(SCRIPT, 1))

    def script(adapter: str, field: Emits, so_far: str) -> str:
        at, text = next(texts)
        if at == turn:
            cancel.cancel()
        return text

    with Runtime(make_team(), engine=ScriptedEngine(script), corpus=corpus, out=out, seed=5) as rt:
        assert rt.run("Who?", run_id="one", note={"from": "a test"}, cancel=cancel).status == "cancelled"


def test_the_log_of_a_resumed_run_tells_each_turn_and_call_once(
    make_team: MakeTeam, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    stopped(make_team, corpus, out, 5)
    file = out / "one" / EVENTS_FILE
    file.write_bytes(file.read_bytes() + b'{"event": "turn_sta')
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT[4:]), corpus=corpus, out=out) as rt:
        seen = list(rt.stream_resumed("one", tokens=False))
    assert isinstance(seen[0], RunResumed)
    assert (seen[0].turns, seen[0].observations, seen[0].seed) == (4, 1, 5)
    assert isinstance(seen[-1], RunFinished)
    assert (seen[-1].status, seen[-1].answer, seen[-1].steps) == ("finished", "shark", 4)
    log = read_run(out / "one")
    assert log.header["note"] == {"from": "a test"}
    assert [event.turn for event in log.standing() if isinstance(event, TurnFinished)] == list(range(1, 15))
    assert [event.step for event in log.standing() if isinstance(event, ToolFinished)] == [1, 2, 3]
    assert [event.event for event in log.standing()].count("run_finished") == 1
    result = EpisodeResult.model_validate_json((out / "one" / RESULT_FILE).read_text())
    assert result.usage["plan"].turns == 8


@pytest.mark.parametrize(
    ("logged", "stale"), [(False, None), (True, None), (False, "cancelled"), (False, "failed"), (True, "cancelled")]
)
def test_a_run_that_died_between_its_end_and_its_result_gets_its_result(
    make_team: MakeTeam, corpus: Path, tmp_path: Path, logged: bool, stale: Status | None
) -> None:
    """`logged`: it had told its end. `stale`: its folder has the result of an interruption before."""
    out = tmp_path / "runs"
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT), corpus=corpus, out=out) as rt:
        whole = rt.run("Who?", run_id="one", score=lambda result: {"right": result.answer == "shark"})
    file = out / "one" / EVENTS_FILE
    if not logged:
        file.write_text("\n".join([*file.read_text().splitlines()[:-1], '{"event": "run_fin']))
    (out / "one" / RESULT_FILE).unlink()
    if stale is not None:
        (out / "one" / RESULT_FILE).write_text(whole.model_copy(update={"status": stale}).model_dump_json())
    with Runtime(make_team(), engine=ScriptedEngine([]), corpus=corpus, out=out) as rt:
        again = rt.resume("one", score=lambda result: {"right": result.answer == "shark"})
        assert read_result(out / "one") == again
        assert again.model_copy(update={"timing": whole.timing}) == whole
        events = read_run(out / "one").standing()
        assert [event.event for event in events if isinstance(event, RunResumed | RunFinished)] == [
            *("run_resumed", "run_finished")
        ]
        assert [event.turn for event in events if isinstance(event, TurnFinished)] == list(range(1, 15))
        with pytest.raises(UsageError, match=r"run one has ended \(finished\)"):
            rt.resume("one")


def test_a_new_run_leaves_no_result_of_the_run_before_in_its_folder(
    make_team: MakeTeam, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT), corpus=corpus, out=out) as rt:
        rt.run("Who?", run_id="one")
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT), corpus=corpus, out=out) as rt:
        events = rt.stream("Who else?", run_id="one")
        next(events)
        assert read_result(out / "one") is None
        events.close()


def test_a_fork_begins_a_new_run_and_leaves_the_old_one(make_team: MakeTeam, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT), corpus=corpus, out=out) as rt:
        whole = rt.run("Who?", run_id="one")
    before = (out / "one" / EVENTS_FILE).read_bytes()
    other = ["Finish", "yes", "So.", "right"]
    team = make_team(("max_steps: 6", "max_steps: 9"))
    with Runtime(team, engine=ScriptedEngine(other, scheme_name="another"), corpus=corpus, out=out) as rt:
        forked = rt.resume("one", at_turn=4, run_id="two")
        with pytest.raises(UsageError, match="--at-turn 99: the run has turns 0 to 14"):
            rt.resume("one", at_turn=99)
        with pytest.raises(UsageError, match=r"has ended \(finished\) at turn 14"):
            rt.resume("one", at_turn=14)
    assert (forked.run_id, forked.scheme, forked.answer, forked.actions[:1]) == (
        *("two", "another", "yes"),
        whole.actions[:1],
    )
    assert (out / "one" / EVENTS_FILE).read_bytes() == before
    events = read_run(out / "two").standing()
    assert isinstance(events[0], RunStarted)
    assert [event.forked_from for event in events if isinstance(event, RunResumed)] == ["one"]
    assert [event.turn for event in events if isinstance(event, TurnFinished)] == list(range(1, 9))


def test_what_cannot_go_on_is_refused_by_name(make_team: MakeTeam, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    stopped(make_team, corpus, out, 5)
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT[4:]), corpus=corpus, out=out) as rt:
        with pytest.raises(UsageError, match="there is no run two"):
            rt.resume("two")
        rt.resume("one")
        with pytest.raises(UsageError, match=r"run one has ended \(finished\): fork it"):
            rt.resume("one")
    other = make_team(("Answer the question.", "Answer."))
    with (
        Runtime(other, engine=ScriptedEngine([]), corpus=corpus, out=out) as rt,
        pytest.raises(UsageError, match="had other preamble"),
    ):
        rt.resume("one", at_turn=1)
    stopped(make_team, corpus, out, 3)
    with (
        Runtime(make_team(), engine=ScriptedEngine([], scheme_name="another"), corpus=corpus, out=out) as rt,
        pytest.raises(UsageError, match="fork it with --at-turn N"),
    ):
        rt.resume("one")
    changed = ScriptedEngine([])
    changed.weights = {"plan": "new"}
    header = json.loads((out / "one" / EVENTS_FILE).read_text().splitlines()[0])
    header["weights"] = {"plan": "old"}
    lines = (out / "one" / EVENTS_FILE).read_text().splitlines()[1:]
    (out / "one" / EVENTS_FILE).write_text("\n".join([json.dumps(header), *lines, ""]))
    with (
        Runtime(make_team(), engine=changed, corpus=corpus, out=out) as rt,
        pytest.raises(UsageError, match="had another adapter 'plan'"),
    ):
        rt.resume("one")
