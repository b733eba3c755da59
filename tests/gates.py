"""A step that is kept in flight until its turn is cancelled, so that a test knows what ran before it and what after."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrt.engine import Engine, EngineConfig
from agentrt.model.backbone import Backbone
from agentrt.step import Step
from tests.crew import tiny_engine

CHUNK = 16
"""Most rows of a step."""


class GatedBackbone(Backbone):
    """Keeps one step of a turn in flight until the engine knows that the turn is cancelled, and counts rows since."""

    engine: Engine

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.held = threading.Event()
        self.rows_held = 0
        self.rows_after = dict[str, int]()
        """By the path that ran them."""
        self._held_turn = ("", "")
        self._steps = 0

    def hold(self, adapter: str, phase: str) -> None:
        """From now on: the third chunk of the adapter's prefill, or the step behind its third token."""
        self._held_turn = (adapter, phase)

    def run(self, step: Step, *args: Any) -> list[Any]:
        if self.held.is_set():
            for each in step.passes:
                self.rows_after[each.path] = self.rows_after.get(each.path, 0) + len(each)
        else:
            self._hold(step)
        return super().run(step, *args)

    def _hold(self, step: Step) -> None:
        adapter, phase = self._held_turn
        if not adapter:
            return
        with self.engine._changed:
            turns = [work.turn for work in self.engine._sessions if work.turn is not None and work.turn.admitted]
            watched = [turn for turn in turns if turn.adapter == adapter and turn.reading == (phase == "prefill")]
            self._steps += len(watched)
            if self._steps == 3:
                self.rows_held = sum(len(each) for each in step.passes)
                self.held.set()
                assert self.engine._changed.wait_for(lambda: watched[0].cancelled, timeout=100)


@contextmanager
def gated(folder: Path, scheme: str) -> Iterator[tuple[Engine, GatedBackbone]]:
    """An engine over a gated backbone; closed after the block."""
    limits = EngineConfig(max_step_tokens=CHUNK, chunk_tokens=CHUNK, ride_rows=4)
    with tiny_engine(folder, scheme, kind=GatedBackbone, config=limits) as engine:
        backbone = engine.backbone
        assert isinstance(backbone, GatedBackbone)
        backbone.engine = engine
        yield engine, backbone
