"""What reaches the terminal."""

import pytest

from agentrt.cli.output import Output


def test_no_control_character_reaches_the_terminal_by_any_way(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\x1b]52;c;ZXZpbA==\x07\r\x7f\x9b2Jz"
    out = Output()
    out.say(f"{evil}\n{evil}")
    out.result(evil)
    out.table((evil,), [(evil,)])
    plain = "a]52;c;ZXZpbA==2Jz"
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [plain] * 5
