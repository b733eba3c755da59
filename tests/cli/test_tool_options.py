"""`run --record` and `--cassette`, and a key that is missing: refused before a model is loaded."""

from pathlib import Path
from typing import Any

NO_ADAPTERS = [f"--set=roles.{role}.adapter=none" for role in ("plan", "action", "reflect")]


def test_recording_and_replaying_at_once_is_refused(cli: Any) -> None:
    result = cli("run", "Who?", "--record", "a", "--cassette", "b", *NO_ADAPTERS)
    assert result.exit_code == 2
    assert "either record calls or play them" in result.stderr


def test_a_folder_that_is_no_cassette_is_refused(cli: Any, tmp_path: Path) -> None:
    result = cli("run", "Who?", "--cassette", "absent", *NO_ADAPTERS)
    assert result.exit_code == 2
    assert "absent is no cassette" in result.stderr


def test_a_missing_key_ends_with_4(cli: Any) -> None:
    result = cli("run", "Who?", "--set", "tools.Search.use=serper.search", *NO_ADAPTERS, env={"SERPER_API_KEY": ""})
    assert result.exit_code == 4
    assert "needs SERPER_API_KEY: set it in the environment or in .env" in result.stderr
