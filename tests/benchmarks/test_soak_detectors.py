"""Each thing that a soak looks for, planted: it must be found, or a clean soak would prove nothing."""

import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrt.engine import Engine
from agentrt.model.backbone import Backbone
from agentrt.step import Step
from agentrt_tools import Json, Tool, ToolResult
from benchmarks.soak.report import SoakPlan
from tests.benchmarks.soaks import soaked
from tests.watched import WatchedBackbone

SHORT = SoakPlan(seconds=0.8, patience=1, warm_up_s=0.3, workers=3, replays=0, settle_s=0.3)
NEVER = 10_000
Deed = Callable[[Engine], object]


class Saboteur:
    """A tool that does a deed at every call, and then what it should."""

    def __init__(self, tool: Tool, deed: Callable[[], object]) -> None:
        self.name, self._tool, self._deed = tool.name, tool, deed

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        self._deed()
        return self._tool(argument, state, question=question)


def with_deed(deed: Deed) -> Callable[[Engine, dict[str, Any]], None]:
    def change(engine: Engine, tools: dict[str, Any]) -> None:
        for name, tool in tools.items():
            tools[name] = Saboteur(tool, lambda: deed(engine))

    return change


def leak_slot(engine: Engine) -> None:
    with engine._changed:
        plane = next(iter(engine._store.planes.values()))
        plane.pool.allocate(1)
        plane.materialise()


def miscount(engine: Engine) -> None:
    """The count of held slots is off by one more from now on."""
    with engine._changed:
        next(iter(engine._store.planes.values())).pool.num_held += 1


def leave_session_open(engine: Engine) -> None:
    engine.session()


@pytest.mark.parametrize(
    ("deed", "fault"),
    [
        (leak_slot, r"round 1: [\d,]+ bytes of slots are still held"),
        (miscount, r"round 1: the books of the slots do not add up"),
        (leave_session_open, r"round 1: \d+ sessions and 0 runs are still open"),
    ],
)
def test_what_the_engine_still_holds_is_found(tmp_path: Path, deed: Deed, fault: str) -> None:
    with soaked(tmp_path, SHORT, scheme="pre_lr_shared", change=with_deed(deed), hang_every=NEVER) as report:
        assert report.counts["tool_calls"] > 0
        assert_found(fault, report.faults)
        assert report.verdict == "failed"


def test_a_thread_that_stays_is_found(tmp_path: Path) -> None:
    over = threading.Event()

    def deed(engine: Engine) -> None:
        threading.Thread(target=over.wait, name="left behind", daemon=True).start()

    with soaked(tmp_path, SHORT, change=with_deed(deed), hang_every=NEVER) as report:
        over.set()
        assert_found(r"round 1: \d+ threads, there were \d+: .*left behind", report.faults)


def test_a_file_that_stays_open_is_found(tmp_path: Path) -> None:
    left: list[int] = []

    def deed(engine: Engine) -> None:
        left.append(os.open(os.devnull, os.O_RDONLY))

    with soaked(tmp_path, SHORT, change=with_deed(deed), hang_every=NEVER) as report:
        for handle in left:
            os.close(handle)
        assert_found(r"round 1: \d+ open files, there were \d+", report.faults)


def test_memory_that_stays_is_found(tmp_path: Path) -> None:
    left: list[bytes] = []

    def change(engine: Engine, tools: dict[str, Any]) -> None:
        assert isinstance(engine.backbone, WatchedBackbone)
        engine.backbone.after = lambda logits: left.append(b"x" * (1 << 20))

    with soaked(tmp_path, SHORT, kind=WatchedBackbone, change=change, hang_every=NEVER) as report:
        assert_found(r"memory has grown by \d+\.\d MiB", report.faults)
        assert report.grown_bytes < len(left) << 20
        left.clear()


def hang_in_a_step(engine: Engine, tools: dict[str, Any], over: threading.Event) -> None:
    steps = iter(range(200))

    def hang(logits: object) -> None:
        if next(steps, None) is None:
            over.wait()

    assert isinstance(engine.backbone, WatchedBackbone)
    engine.backbone.after = hang


def hang_with_the_lock(engine: Engine, tools: dict[str, Any], over: threading.Event) -> None:
    def deed(engine: Engine) -> None:
        with engine._changed:
            over.wait()

    with_deed(deed)(engine, tools)


@pytest.mark.parametrize("hang", [hang_in_a_step, hang_with_the_lock])
def test_work_that_never_ends_is_found_and_ends_the_soak(
    tmp_path: Path, hang: Callable[[Engine, dict[str, Any], threading.Event], None]
) -> None:
    over = threading.Event()
    plan = SoakPlan(seconds=60.0, warm_up_s=60.0, workers=3, stuck_s=4.0)  # none takes half of that by itself
    with soaked(tmp_path, plan, kind=WatchedBackbone, change=lambda *args: hang(*args, over)) as report:
        over.set()  # so that it can be closed after all
        assert report.stuck
        assert report.verdict == "failed"
        assert report.faults == ["a piece of work has not ended in 4 s"]
        assert report.warm is None
        assert report.compared.replays == 0


class WrongInCompany(Backbone):
    """Now and then, the most likely token is the least likely one, where a step has several passes."""

    steps = 0

    def run(self, step: Step, *args: Any) -> list[Any]:
        logits = super().run(step, *args)
        given = [number for number, each in enumerate(logits) if each is not None]
        if len(given) > 1:
            self.steps += 1
            if self.steps % 11 == 0:
                logits[given[-1]] = -logits[given[-1]]
        return logits


def test_a_token_that_is_wrong_in_company_only_is_found(tmp_path: Path) -> None:
    plan = replace(SHORT, seconds=1.5, replays=9)
    with soaked(tmp_path, plan, kind=WrongInCompany, hang_every=NEVER) as report:
        assert_found(r"differs from its replay; the two tokens are \S+ apart", report.faults)


def test_a_worker_that_breaks_is_told(tmp_path: Path) -> None:
    def change(engine: Engine, tools: dict[str, Any]) -> None:
        engine.backbone.model.model.norm.register_forward_pre_hook(lambda module, rows: 1 / 0)

    with soaked(tmp_path, SHORT, change=change, hang_every=NEVER) as report:
        assert_found(r"round 1: a worker ended with EngineError\(.*ZeroDivisionError", report.faults)


def assert_found(fault: str, faults: list[str]) -> None:
    assert any(re.search(fault, each) for each in faults), faults
