"""No key in any output: events, results, logs, cassettes, screens, reprs, tracebacks, settings, pickles."""

import io
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentrt.cli import episode
from agentrt.cli.main import app
from agentrt.cli.output import Output
from agentrt.config.team import Override, Team
from agentrt.runtime.episode import Runtime
from agentrt.testing import ScriptedEngine
from agentrt_tools import Secret, SerperClient, SerperSearch, find_secret
from agentrt_tools.web import Web
from tests.http_double import Asked, Reply, http_double

KEY = "sk-very-secret-0123456789"


def echoing(asked: Asked) -> Reply:
    """A service that gives away whatever it was sent: once in an answer, then in errors."""
    told = f"key {asked.headers['X-API-KEY']}"
    given = {
        "ok": Reply({"organic": [{"title": "T", "link": "l", "snippet": "S"}]}),
        "bad": Reply({"message": told}, 400),
        "auth": Reply({"message": told}, 403),
        "cut": Reply({"message": told}, 500, cut=5),
        "odd": Reply("<html>" + told),
    }
    return given[asked.body["q"]]


def test_a_run_with_a_failing_service_writes_the_key_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    wanted = ["ok", "bad", "auth", "cut", "odd"]
    script = [text for query in wanted for text in ("I look.", "Search", query)]
    changes = [
        Override(("tools", "Search"), {"use": "serper.search", "retries": 0}, "test"),
        Override(("limits", "max_steps"), len(wanted), "test"),
        Override(("limits", "max_tool_errors"), 9, "test"),
        Override(("flow", "nodes", "argue", "constrain"), {}, "test"),
    ]
    team = Team.load("search", overrides=changes, need_adapters=False)
    (tmp_path / "articles.jsonl").write_text('{"title": "T", "sentences": ["S."]}\n')
    with http_double(echoing) as double:
        search = SerperSearch(SerperClient(url=double.url, web=Web("Serper", user_agent="agentrt", read_s=2)))
        runtime = Runtime(
            team,
            engine=ScriptedEngine(script),
            tools={"Search": search},
            corpus=tmp_path / "articles.jsonl",
            out=tmp_path / "runs",
            record=tmp_path / "tape",
        )
        with runtime:
            events = runtime.stream("Who?")
            code = episode.play(team, episode.Asked("Who?"), events, Output(as_json=True), folder=tmp_path)
        assert {asked.headers["X-API-KEY"] for asked in double.asked} == {KEY}
    assert code == 4
    shown = capsys.readouterr()
    files = [file for folder in ("runs", "tape") for file in (tmp_path / folder).rglob("*") if file.is_file()]
    assert len(files) == 5
    texts = [shown.out, shown.err, repr(search), repr(vars(search)), repr(runtime), repr(team)]
    texts += [file.read_text(encoding="utf-8", errors="replace") for file in files]
    assert "key ***" in "".join(texts)
    assert KEY not in "".join(texts)


def test_settings_and_team_files_show_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"SERPER_API_KEY": KEY, "XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / ".env").write_text(f"SERPER_API_KEY={KEY}\n")
    commands = [
        ["config", "show", "--origin"],
        ["config", "show", "--json"],
        ["roles", "show", "search"],
        ["doctor"],
        ["roles", "check", "search", "--set", f"tools.Search.api_key={KEY}"],
    ]
    for command in commands:
        done = CliRunner().invoke(app, command, env=env)
        assert KEY not in done.output + done.stderr


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret(KEY)
    assert KEY not in f"{secret} {secret!r} {[secret]} {secret:}"
    assert secret.scrub(f"it is {KEY}!") == "it is ***!"
    with pytest.raises(TypeError, match="not stored"):
        pickle.dump(secret, io.BytesIO())
    try:
        raise ValueError(secret)
    except ValueError as error:
        shown: Any = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert KEY not in "".join(shown.format()).replace(f"KEY = '{KEY}'", "")


def test_the_environment_goes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("A_KEY=file\nB_KEY=\n")
    monkeypatch.setenv("A_KEY", " environment ")
    found = find_secret("A_KEY")
    assert found is not None
    assert found.reveal() == "environment"
    assert find_secret("B_KEY") is None
    assert find_secret("C_KEY") is None
