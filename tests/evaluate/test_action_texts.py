"""Recorded action lines through the grammars, and the command that prints the table."""

import json
from pathlib import Path

import pytest

from agentrt.errors import DataError
from agentrt.evaluate.action_texts import ParseCounts, action_texts, count_file

FILES = ("autoact_13b_hotpotqa", "autoact_70b_hotpotqa", "autoact_70b_scienceqa")
OTHERS = ("knowagent_hotpotqa", "knowagent_attempts_hotpotqa", "fireact_hotpotqa")


def turn(role: str, action: str, action_input: str = "", **more: object) -> dict[str, object]:
    return {"role": role, "action": action, "action_input": action_input, "well_formed": True, **more}


def test_a_step_has_one_action_line() -> None:
    turns = [
        turn("plan", "Search"),
        turn("action", "Search", "it"),
        turn("plan", "None.", well_formed=False),
        turn("plan", "Finish", well_formed=False),
        turn("action", "Finish", "42", well_formed=False, action_text="Finish[42]."),
        turn("reflect", "Reflect", "right"),
    ]
    assert list(action_texts(turns)) == ["Search[it]", "None.", "Finish[42].", "Reflect[right]"]


def test_texts_and_repairs_are_counted(tmp_path: Path) -> None:
    lines = ["Finish[42]", "finish[42].", "None", "Compare them"]
    turns = [turn("reflect", "Finish", "", action_text=line, well_formed=line == "Finish[42]") for line in lines]
    (tmp_path / "one.jsonl").write_text(json.dumps({"turns": turns}) + "\n")
    counts = count_file(tmp_path / "one.jsonl")
    assert counts == ParseCounts(4, 1, 3, 1, counts.repairs)
    assert counts.repairs == {"case": 1, "behind": 1, "none": 1}


def test_a_row_ends_with_its_line_and_not_before(tmp_path: Path) -> None:
    turns = [turn("reflect", "Finish", "", action_text="Finish[a\u2028b]")]
    (tmp_path / "one.jsonl").write_text(json.dumps({"turns": turns}, ensure_ascii=False) + "\n", "utf-8")
    assert count_file(tmp_path / "one.jsonl").texts == 1


@pytest.mark.parametrize("row", ["[]", "{}", "x", '{"turns": [{"role": "plan"}]}', '{"turns": 3}'])
def test_a_row_that_is_no_trajectory_is_named_with_its_line(tmp_path: Path, row: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"turns": []}\n' + row + "\n")
    with pytest.raises(DataError, match=r"bad.jsonl:2: not a (trajectory|JSON object)"):
        count_file(tmp_path / "bad.jsonl")


def test_of_autoacts_actions_more_than_88_percent_can_be_read(shared_data: Path) -> None:
    total = ParseCounts()
    for name in FILES:
        total.add(count_file(shared_data / "trajectories" / f"{name}.jsonl"))
    assert total.texts == 3420
    assert total.strict / total.texts > 0.88
    assert (total.lenient - total.nothing) / total.texts > 0.91
    assert total.lenient / total.texts > 0.97


@pytest.mark.parametrize("name", OTHERS)
def test_of_other_agents_actions_nearly_all_can_be_read(shared_data: Path, name: str) -> None:
    counts = count_file(shared_data / "trajectories" / f"{name}.jsonl")
    assert counts.texts > 500
    assert counts.lenient / counts.texts > 0.99
