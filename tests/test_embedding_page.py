"""The programs of docs/embedding.md, as they stand there, with a scripted engine in the model's place."""

import ast
import asyncio
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import agentrt
from agentrt import EngineConfig
from agentrt.config.flow import Emits
from agentrt.runtime.events import RunFinished, parse_event
from agentrt.runtime.result import EpisodeResult
from agentrt.testing import ScriptedEngine
from tests.crew import may_search, tiny_engine
from tests.gates import GatedBackbone, gated

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
    """The names the programs share; `engine`, a script unless a test puts another there, serves every Runtime."""
    opened: list[agentrt.Runtime] = []

    def open_served(name: str, **options: Any) -> agentrt.Runtime:
        team = agentrt.Team.load(name, overrides=[may_search("Steven Spielberg")])
        opened.append(agentrt.Runtime(team, engine=names["engine"], **options))
        return opened[-1]

    names: dict[str, Any] = {"__name__": "program", "engine": ScriptedEngine(answer)}
    exec(compile(PROGRAMS["common"], str(PAGE), "exec"), names)
    names["Runtime"] = open_served
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


def test_the_run_is_cancelled_by_the_timer(
    scope: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with gated(tmp_path, "pre_lr_shared") as (scope["engine"], backbone):
        backbone.hold("plan", "decode")  # it cannot be faster: a step does not end before the cancel
        run("cancel", scope)
        assert capsys.readouterr().out == "cancelled\n"
        assert backbone.rows_after == {}


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


def test_a_full_queue_is_503_and_leaves_no_run(scope: dict[str, Any], tmp_path: Path) -> None:
    with tiny_engine(tmp_path, "pre_lr_shared", config=EngineConfig(max_waiting=0)) as scope["engine"]:
        app = run("fastapi", scope)["app"]
        with TestClient(app) as client:
            refused = client.get("/run", params={"question": "Where?"})
            assert refused.status_code == 503
            assert "try again later" in refused.json()["detail"]
            assert client.get("/healthz").json()["runs"] == 0


async def get_and_leave(app: Any, path: str, backbone: GatedBackbone) -> list[dict[str, Any]]:
    """GET as a server does it (ASGI 2.3) whose client goes away while a step of its run is in flight; the JSON lines
    that were sent."""
    request, sent = iter([{"type": "http.request", "body": b"", "more_body": False}]), list[bytes]()

    async def receive() -> dict[str, Any]:
        if (first := next(request, None)) is not None:
            return first
        assert await asyncio.to_thread(backbone.held.wait, 100)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message.get("body", b""))

    asked = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"question=Who%3F",
    }
    server = {"asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http"}
    peers = {"root_path": "", "headers": [], "client": ("client", 1), "server": ("server", 80)}
    await app({**asked, **server, **peers}, receive, send)
    return [json.loads(line) for line in b"".join(sent).splitlines()]


@pytest.mark.parametrize("path", ["/run", "/stream"])
def test_a_client_that_goes_away_cancels_its_run(scope: dict[str, Any], tmp_path: Path, path: str) -> None:
    async def main() -> list[dict[str, Any]]:
        app = run("fastapi", scope)["app"]
        async with app.router.lifespan_context(app):
            sent = await get_and_leave(app, path, backbone)
            assert await asyncio.to_thread(app.state.runtime.drain, 60)
            return sent

    with gated(tmp_path, "pre_lr_shared") as (scope["engine"], backbone):
        backbone.hold("plan", "decode")
        sent = asyncio.run(main())
        assert scope["engine"].health().sessions == 0
        assert backbone.rows_after == {}
    if path == "/run":
        assert sent[0]["status"] == "cancelled"
    else:
        said = [event["event"] for event in sent]
        assert said[:2] == ["run_started", "turn_started"]
        assert set(said[2:]) <= {"token"}, "nobody waited for its end"


def test_the_graph_reports(scope: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run("langgraph", scope)
    assert capsys.readouterr().out == f"the author of Dracula: {ANSWER}\n"
