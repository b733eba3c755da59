"""The entry point: fast help, one clean message per error, and exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from agentrt.cli.main import CommandGroup, Terminated
from agentrt.cli.options import Json, Verbose
from agentrt.errors import AdapterError, ConfigError, EngineError, Problem, ToolHealthError, UsageError

HEAVY = ("torch", "transformers", "peft", "langgraph", "pydantic", "numpy", "requests", "yaml")

ERRORS: dict[str, tuple[BaseException, int]] = {
    "usage": (UsageError("say it otherwise"), 2),
    "config": (ConfigError([Problem("f.yaml", 3, 4, "no such key")]), 2),
    "tools": (ToolHealthError("no credit left"), 4),
    "adapter": (AdapterError("DoRA"), 5),
    "engine": (EngineError("stuck"), 1),
    "path": (PermissionError(13, "Permission denied", "/some/where"), 2),
    "no path": (OSError(5, "Input/output error"), 1),
    "bug": (ZeroDivisionError("oops"), 1),
    "obeyed": (UsageError("a\x1b]52;c;ZXZpbA==\x07b"), 2),
    "interrupted": (KeyboardInterrupt("run 7"), 130),
    "terminated": (Terminated("run 7"), 143),
}


def failing(*args: str) -> Any:
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.command()
    def fail(name: str, as_json: Json = False, verbose: Verbose = False) -> None:
        raise ERRORS[name][0]

    @app.command()
    def other() -> None: ...

    return CliRunner().invoke(app, ["fail", *args])


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_ends_with_its_exit_code_and_one_message(name: str) -> None:
    error, code = ERRORS[name]
    result = failing(name)
    assert result.exit_code == code
    said = {"path": "/some/where: Permission denied; give another path", "obeyed": "a]52;c;ZXZpbA==b"}
    assert said.get(name, str(error)) in result.stderr
    assert ("bug in agentrt" in result.stderr) == (name in ("bug", "no path"))
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_verbose_shows_the_traceback() -> None:
    result = failing("bug", "-v")
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError: oops" in result.stderr


def test_verbose_shows_where_a_path_was_refused() -> None:
    assert "PermissionError" in failing("path", "-v").stderr


def test_with_json_an_error_is_an_event_on_stdout() -> None:
    event = json.loads(failing("config", "--json").stdout)
    assert event == {
        "event": "error",
        "kind": "ConfigError",
        "message": "f.yaml:3:4: no such key",
        "problems": [{"file": "f.yaml", "line": 3, "column": 4, "message": "no such key"}],
        "exit_code": 2,
    }


def test_interruption_tells_which_run_it_was() -> None:
    assert failing("interrupted").stderr.strip() == "interrupted: run 7"


@pytest.mark.parametrize("args", [("rnu",), ("run", "--no-such-option"), ("run", "--index", "-1", "x"), ("roles", "x")])
def test_wrong_usage_ends_with_2(cli: Any, args: tuple[str, ...]) -> None:
    assert cli(*args).exit_code == 2


def test_a_folder_to_record_in_that_is_a_file_is_no_bug(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    no_adapters = [f"--set=roles.{role}.adapter=none" for role in ("plan", "action", "reflect")]
    result = cli("run", "Who?", "--record", str(tmp_path / "taken"), "--json", *no_adapters)
    assert result.exit_code == 2
    assert f"error: {tmp_path / 'taken'}: File exists" in result.stderr
    assert json.loads(result.stdout)["kind"] == "UsageError"


def test_help_names_every_command(cli: Any) -> None:
    text = cli("--help").stdout
    for command in ("run", "train", "schemes", "roles", "models", "doctor", "config"):
        assert command in text


def test_starting_the_command_line_imports_nothing_heavy() -> None:
    code = "import sys, agentrt.cli.main; print([name for name in sys.argv[1:] if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_version_is_shown(cli: Any) -> None:
    result = cli("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("agentrt ")
