"""Runs that go on after an interruption: the same tokens, whatever the scheme and wherever they were left."""

import json
from pathlib import Path

from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import Token
from agentrt.runtime.runlog import RESULT_FILE
from tests.crew import CORPUS, short_team, tiny_engine

QUESTION = "Where was the director of Jaws born?"


def test_a_cancelled_run_goes_on_with_the_tokens_it_would_have_had(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    with (
        tiny_engine(tmp_path / "weights", "rebase_shared") as engine,
        Runtime(short_team(), engine=engine, corpus=CORPUS, out=out, seed=3) as rt,
    ):
        whole = rt.run(QUESTION)
        for after in range(1, len(whole.usage) + 3):
            run_id = f"cut{after}"
            events = rt.stream(QUESTION, run_id=run_id)
            next(event for event in events if isinstance(event, Token) and event.turn == after)
            events.close()
            assert json.loads((out / run_id / RESULT_FILE).read_text())["status"] == "cancelled"
    with (
        tiny_engine(tmp_path / "weights", "rebase_shared") as engine,
        Runtime(short_team(), engine=engine, corpus=CORPUS, out=out) as rt,
    ):
        for after in range(1, len(whole.usage) + 3):
            again = rt.resume(f"cut{after}")
            assert again.token_ids == whole.token_ids
            assert again.status == whole.status
            assert again.actions == whole.actions
