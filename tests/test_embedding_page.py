"""The programs of docs/embedding.md, as they stand there, with a scripted engine in the model's place."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import agentrt
from agentrt.config.flow import Emits
from agentrt.runtime.events import RunFinished, parse_event
from agentrt.runtime.result import EpisodeResult
from agentrt.testing import ScriptedEngine

PAGE = Path(__file__).resolve().parents[1] / "docs" / "embedding.md"
PROGRAMS = {
    match[1]: match[2]
    for match in re.finditer(r"^```python\n# (\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
}
ANSWER = "Cincinnati"


def answer(adapter: str, field: Emits, so_far: str) -> str:
    """Finishes at once; the answer must have been observed, or be yes or no, so it reads a page first."""
    searched, read = "Action: Search[" in so_far, "Action: Retrieve[" in so_far
    action = "Finish" if read else "Retrieve" if searched else "Search"
    argument = {"Search": "Steven Spielberg", "Retrieve": "Steven Spielberg", "Finish": ANSWER}[action]
    if field == "argument":
        wrote = so_far.rpartition("Action: ")[2].partition("[")[0]
        argument = {"Search": "Steven Spielberg", "Retrieve": "Steven Spielberg", "Finish": ANSWER}[wrote]
    return {"thought": "On.", "action": action, "argument": argument, "verdict": "right"}[field]


@pytest.fixture
def scope() -> Iterator[dict[str, Any]]:
    """The names the programs share; every Runtime they make is served by a script."""
    opened: list[agentrt.Runtime] = []

    def open_scripted(*args: Any, **options: Any) -> agentrt.Runtime:
        opened.append(agentrt.Runtime(*args, engine=ScriptedEngine(answer), **options))
        return opened[-1]

    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(PROGRAMS["common"], str(PAGE), "exec"), names)
    names["Runtime"] = open_scripted
    yield names
    for runtime in opened:
        assert runtime.health().status == "closed", "the program closes what it opens"


def run(name: str, scope: dict[str, Any]) -> dict[str, Any]:
    """Run a program; one with a bare await runs as a notebook would run it."""
    code = compile(PROGRAMS[name], f"{PAGE}:{name}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    pending = eval(code, scope)
    if inspect.iscoroutine(pending):
        asyncio.run(pending)
    return scope


def test_every_program_of_the_page_is_run_here() -> None:
    tested = {"common", "script", "cancel", "notebook", "fastapi", "langgraph"}
    assert set(PROGRAMS) == tested
    assert PAGE.read_text(encoding="utf-8").count("```python") == len(tested)


def test_the_script_answers_and_streams(scope: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run("script", scope)
    printed = capsys.readouterr().out
    assert printed.startswith(f"finished {ANSWER}\n On.\n Search")
    assert scope["result"].seed == 1


def test_the_cancelled_run_says_so_or_was_faster(scope: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run("cancel", scope)
    assert capsys.readouterr().out.strip() in ("cancelled", "finished")


def test_the_notebook_cell_awaits(scope: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run("notebook", scope)
    assert capsys.readouterr().out == f"{ANSWER}\n"


def test_the_handlers_answer_stream_and_tell_their_health(scope: dict[str, Any]) -> None:
    app = run("fastapi", scope)["app"]
    with TestClient(app) as client:
        result = EpisodeResult.model_validate(client.get("/run", params={"question": scope["QUESTION"]}).json())
        assert (result.status, result.answer) == ("finished", ANSWER)
        events = [parse_event(line) for line in client.get("/stream", params={"question": "Where?"}).text.splitlines()]
        assert isinstance(events[-1], RunFinished)
        assert (events[0].event, events[-1].answer) == ("run_started", ANSWER)
        assert client.get("/healthz").json()["status"] == "ok"
        app.state.runtime.drain()
        refused = client.get("/healthz")
        assert (refused.status_code, refused.json()["detail"]["status"]) == (503, "draining")


def test_the_graph_reports(scope: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run("langgraph", scope)
    assert capsys.readouterr().out == f"the author of Dracula: {ANSWER}\n"
