"""A role learns its own taught fields and nothing else; batches keep every target."""

from itertools import chain, islice
from pathlib import Path

import pytest

from agentrt.errors import DataError
from agentrt.training.batches import PAD_MULTIPLE, collate, shuffled_steps, split_by_tokens
from agentrt.training.examples import (
    Example,
    Recorded,
    RecordedSpan,
    TaughtField,
    preamble_of,
    read_recorded,
    role_example,
    turns_of,
    write_recorded,
)

RECORDED = Recorded(
    "q1/none",
    "q1",
    tuple(range(100, 120)),
    (
        RecordedSpan(0, 4, "user", "question"),
        RecordedSpan(4, 7, "plan", "thought"),
        RecordedSpan(7, 9, "runtime", "label"),
        RecordedSpan(9, 10, "plan", "action"),
        RecordedSpan(10, 14, "action", "argument"),
        RecordedSpan(14, 16, "plan", "thought", False),
        RecordedSpan(16, 18, "action", "argument"),
        RecordedSpan(18, 20, "tool", "observation"),
    ),
)


def test_targets_are_the_roles_own_taught_fields() -> None:
    plan = role_example(RECORDED, "plan")
    assert plan is not None
    assert plan.targets == (4, 5, 6, 9)
    assert plan.fields == (("thought", 4, 7), ("action", 9, 10))
    assert plan.token_ids == tuple(range(100, 110)), "nothing after the last target"
    action = role_example(RECORDED, "action")
    assert action is not None
    assert action.targets == (10, 11, 12, 13, 16, 17)
    assert role_example(RECORDED, "reflect") is None


def test_own_rows_are_what_the_role_reads_first_and_writes_but_its_last_token() -> None:
    plan, action = role_example(RECORDED, "plan"), role_example(RECORDED, "action")
    assert plan is not None
    assert action is not None
    assert plan.own_rows == (0, 1, 2, 3, 4, 5, 6, 7, 8), "the turn at 14 lies behind the last target"
    assert action.own_rows == (9, 10, 11, 12, 15, 16)
    assert plan.since == (0, 0, 0, 0, 0, 0, 6, 6, 6)
    assert action.since == (9, 9, 9, 9, 15, 15)
    for example in (plan, action):
        assert {target - 1 for target in example.targets} <= set(example.own_rows)


def test_every_target_is_predicted_from_the_position_before_it() -> None:
    short = Example("a", "a", (3, 4, 5, 6), (TaughtField("thought", 2, 4),))
    long = Example("b", "b", tuple(range(40, 80)), (TaughtField("action", 1, 2), TaughtField("argument", 39, 40)))
    batch = collate([long, short])
    width = batch.token_ids.shape[1]
    assert width % PAD_MULTIPLE == 0
    flat = batch.token_ids.flatten()
    assert [int(flat[row + 1]) for row in batch.rows] == batch.labels.tolist() == [41, 79, 5, 6]
    assert batch.rows.tolist() == [0, 38, width + 1, width + 2]


def test_splits_stay_within_the_token_budget_and_lose_nothing() -> None:
    examples = [
        Example(str(n), str(n), tuple(range(n)), (TaughtField("thought", 1, 2),)) for n in (10, 200, 33, 64, 20)
    ]
    groups = list(split_by_tokens(examples, 128))
    assert sorted(e.id for group in groups for e in group) == sorted(e.id for e in examples)
    assert [len(group) for group in groups] == [1, 2, 2]
    assert all(len(group) == 1 or collate(group).token_ids.numel() <= 128 for group in groups)


def test_every_pass_visits_each_example_once_in_a_new_order() -> None:
    steps = list(islice(shuffled_steps(9, 3, seed=1), 6))
    first, second = list(chain(*steps[:3])), list(chain(*steps[3:]))
    assert sorted(first) == sorted(second) == list(range(9))
    assert first != second
    assert steps == list(islice(shuffled_steps(9, 3, seed=1), 6))


def test_recorded_trajectories_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_recorded(path, [RECORDED, RECORDED])
    assert list(read_recorded(path)) == [RECORDED, RECORDED]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not a recorded trajectory"),
        ('{"id": "x"}', "not a recorded trajectory"),
        ('{"id":"x","question_id":"x","token_ids":[1],"spans":[[0,2,"a","b",true]]}', "outside its 1 tokens"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "t.jsonl"
    write_recorded(path, [RECORDED])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=rf"t\.jsonl:2: .*{reason}"):
        list(read_recorded(path))


def test_turns_are_the_fields_and_what_stands_before_each() -> None:
    spans = (
        RecordedSpan(0, 2, "system", "preamble"),
        RecordedSpan(2, 4, "user", "question"),
        RecordedSpan(4, 6, "plan", "thought"),
        RecordedSpan(6, 7, "plan", "action"),
        RecordedSpan(7, 8, "tool", "observation"),
    )
    recorded = Recorded("a", "a", tuple(range(8)), spans)
    assert preamble_of(recorded) == (0, 1)
    assert [tuple(turn) for turn in turns_of(recorded)] == [("plan", (2, 3), (4, 5)), ("plan", (), (6,))]
    bare = Recorded("b", "b", (1, 2), (RecordedSpan(0, 1, "user", "question"), RecordedSpan(1, 2, "plan", "thought")))
    assert preamble_of(bare) == ()
    assert [tuple(turn) for turn in turns_of(bare)] == [("plan", (1,), (2,))]
