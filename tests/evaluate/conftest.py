"""Runtimes on a tiny random model."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentrt.engine import Engine
from agentrt.runtime.episode import Runtime
from tests.crew import CORPUS, short_team, tiny_engine

OpenRuntime = Callable[..., Runtime]


@pytest.fixture
def open_runtime(tmp_path: Path) -> Iterator[OpenRuntime]:
    """`open_runtime(scheme)`: the short team on a tiny model of its own, closed after the test."""
    opened: list[tuple[Runtime, Engine]] = []

    def build(scheme: str = "pre_lr_shared", **limits: int) -> Runtime:
        engine = tiny_engine(tmp_path, scheme)
        runtime = Runtime(short_team(**limits), engine=engine, corpus=CORPUS)
        opened.append((runtime, engine))
        return runtime

    yield build
    for runtime, engine in opened:
        runtime.close()
        assert engine.health().sessions == 0
        engine.close()
