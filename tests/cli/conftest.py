"""Runs the command line in this process, away from the settings of whoever runs the tests."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentrt.cli.main import app

Invoke = Callable[..., Any]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """`cli("config", "show", env={...})` -> a result with exit_code, stdout and stderr; runs in tmp_path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    for name in ("TEAM", "SCHEME", "SEED", "OUT", "OFFLINE", "DEVICE", "THREADS", "CORPUS"):
        monkeypatch.delenv(f"AGENTRT_{name}", raising=False)

    def invoke(*args: str, env: Mapping[str, str] | None = None) -> Any:
        return CliRunner().invoke(app, list(args), env=dict(env or {}))

    return invoke
