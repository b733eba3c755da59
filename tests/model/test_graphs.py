"""Decode steps that are recorded and replayed give the tokens of torch; what cannot be recorded runs as ever."""

import copy
import logging
from types import SimpleNamespace

import pytest
import torch

from agentrt.engine import Engine, EngineConfig
from agentrt.errors import UsageError
from agentrt.model import graphs
from agentrt.model.backbone import Backbone
from agentrt.model.graphs import DecodeGraphs
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.schemes.make import make_scheme
from agentrt.trajectory import NEUTRAL
from tests.device_double import Replayer

QV, QKVO = ("q_proj", "v_proj"), ("q_proj", "k_proj", "v_proj", "o_proj")
TURNS = [(("plan", "plan", "action"), [3, 5, 9, 11, 40, 7, 2], 4), (("action", "plan", "plan"), [12, 6], 3)]
"""Who speaks in each of three sessions, what is new, and how many tokens are written."""
READING = "more than one token of a path: reading, or rows that ride beside decoding"
STEP = ("adapters", "all_rows", "value_rows", "kv_writes", "layer_writes", "column_writes", "readers")
"""What a step's context holds of its rows."""


@pytest.fixture
def tiny(tmp_path):
    """tiny(targets): a model of which one layer has a window, and two adapters of different ranks."""

    def build(targets=QV):
        model = tiny_model("ministral", layers=2, head_dim=16, sliding_window=9)
        folders = {
            name: tiny_adapter(model, tmp_path / name, r=rank, targets=targets, seed=rank)
            for name, rank in (("plan", 4), ("action", 6))
        }
        return model, folders

    return build


def play(model, folders, scheme, recorder=None, turns=TURNS, **limits):
    """The tokens of one session for each of a turn's speakers, and what the engine says of its graphs.

    Without a recorder: on the torch path.
    """
    backbone = Backbone(copy.deepcopy(model), backend="triton" if recorder else "reference", recorder=recorder)
    wanted = "auto" if recorder else "off"
    config = EngineConfig(**{"segment_slots": 256, "poison": True, "ride_rows": 0, "cuda_graphs": wanted, **limits})
    with Engine(backbone, backbone.load_adapters(folders), make_scheme(scheme), config=config) as engine:
        sessions = [engine.session([7, 8, 9]) for _ in turns[0][0]]
        for speakers, context, count in turns:
            running = [
                session.turn(who, context, Sampling(max_new_tokens=count))
                for session, who in zip(sessions, speakers, strict=True)
            ]
            for turn in running:
                assert turn.result is not None
        return [session.trajectory.token_ids for session in sessions], engine.stats().graphs


@pytest.mark.parametrize(
    "scheme",
    [
        "pre_lr_shared",
        pytest.param("rebase_shared", marks=pytest.mark.slow),
        pytest.param("rebase_shared:db", marks=pytest.mark.slow),
        pytest.param("non_shared", marks=pytest.mark.slow),
        pytest.param("base_shared", marks=pytest.mark.slow),
    ],
)
def test_replayed_steps_give_the_tokens_of_the_torch_path(tiny, scheme, monkeypatch):
    """Replays launch what was recorded, on the tables that were there, whatever the step's own records say."""
    model, folders = tiny()
    want, none = play(model, folders, scheme)
    assert none is None
    recorder = Replayer().watch(monkeypatch)
    got, use = play(model, folders, scheme, recorder)
    assert got == want
    assert use.recorded == recorder.recorded
    assert use.unavailable is None
    assert use.replayed >= use.recorded > 0
    assert set(use.refused) == {READING}


def test_a_replay_reads_nothing_of_the_step_but_its_numbers(tiny, monkeypatch):
    """With the step's records gone the tokens are the same; with other numbers the logits differ."""
    model, folders = tiny()
    backbone = Backbone(model, backend="triton")
    context = backbone._context

    def forget():
        for name in STEP:
            vars(context).pop(name, None)

    recorder = Replayer(forget).watch(monkeypatch)
    backbone._recorder = recorder
    made = []
    monkeypatch.setattr(backbone, "graphs", lambda: made.append(Backbone.graphs(backbone)) or made[-1])
    config = EngineConfig(segment_slots=64, ride_rows=0, cuda_graphs="auto")
    with Engine(backbone, backbone.load_adapters(folders), make_scheme("pre_lr_shared"), config=config) as engine:
        engine.session().turn("plan", [3, 5, 9], Sampling(max_new_tokens=4)).result  # noqa: B018 - waits
        assert engine.stats().graphs.replayed == 3
        (recorded,) = made[0]._recorded.values()
        before = recorded.logits.clone()
        with torch.inference_mode():
            recorded.replay()
            assert torch.equal(recorded.logits, before)
            recorded.numbers[0] += 1  # the first token's id
            recorded.replay()
        assert not torch.allclose(recorded.logits, before, atol=1e-3)


def test_steps_of_a_shape_share_a_graph_and_other_shapes_get_their_own(tiny, monkeypatch):
    model, folders = tiny()
    recorder = Replayer().watch(monkeypatch)
    one = [(("plan",), [3, 5, 9], 6)]
    _, use = play(model, folders, "pre_lr_shared", recorder, one)
    assert (use.recorded, use.replayed) == (1, 5)
    three = [(("plan", "plan", "plan"), [3, 5, 9], 3)]
    _, use = play(model, folders, "pre_lr_shared", recorder, three)
    assert 1 <= use.recorded <= 3
    assert use.replayed >= 2


@pytest.mark.slow
def test_planes_that_grow_are_recorded_anew(tiny, monkeypatch):
    model, folders = tiny()
    turns = [(("plan",), [3, 5, 9], 3), (("plan",), list(range(20, 40)), 3)]
    want, _ = play(model, folders, "pre_lr_shared", turns=turns)
    recorder = Replayer().watch(monkeypatch)
    got, use = play(model, folders, "pre_lr_shared", recorder, turns)
    assert (got, use.recorded) == (want, 1)
    got, use = play(model, folders, "pre_lr_shared", recorder, turns, segment_slots=8)
    assert (got, use.recorded) == (want, 2)


@pytest.mark.slow
def test_the_graph_used_least_recently_leaves_when_there_are_too_many(tiny, monkeypatch):
    model, folders = tiny()
    turns = [(("plan",), [3, 5, 9], 3), ((NEUTRAL,), [3], 3), (("plan",), [3], 3)]
    want, _ = play(model, folders, "non_shared", turns=turns)
    recorder = Replayer().watch(monkeypatch)
    got, use = play(model, folders, "non_shared", recorder, turns)
    assert (got, use.recorded) == (want, 2)
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 1)
    got, use = play(model, folders, "non_shared", recorder, turns)
    assert (got, use.recorded) == (want, 3)


@pytest.mark.parametrize(
    ("scheme", "targets", "limits", "reason"),
    [
        ("rebase_shared:auto", QV, {"ride_rows": 3}, READING),
        ("pre_lr_shared", QKVO, {}, "keys or values made for a reader"),
        ("cacheblend", QV, {}, "rows of some layers only"),
    ],
)
def test_a_step_that_cannot_be_recorded_runs_as_before_and_the_reason_is_counted(
    tiny, scheme, targets, limits, reason, monkeypatch
):
    model, folders = tiny(targets)
    turns = [(("plan",), [3, 5, 9, 11, 40, 7, 2], 3), (("action",), [12, 6], 3)]
    want, _ = play(model, folders, scheme, turns=turns, **limits)
    got, use = play(model, folders, scheme, Replayer().watch(monkeypatch), turns, **limits)
    assert got == want
    assert use.refused[reason] > 0


def test_a_failed_recording_is_told_once_and_nothing_is_recorded_afterwards(tiny, caplog):
    class Refusing:
        def __init__(self):
            self.asked = 0

        def record(self, launch):
            self.asked += 1
            launch()
            raise RuntimeError("operation not permitted when stream is capturing")

    model, folders = tiny()
    turns = [(("plan",), [3, 5, 9], 5)]
    want, _ = play(model, folders, "pre_lr_shared", turns=turns)
    recorder = Refusing()
    with caplog.at_level(logging.WARNING, "agentrt.model"):
        got, use = play(model, folders, "pre_lr_shared", recorder, turns)
    assert got == want
    assert recorder.asked == 1
    assert use.unavailable == "a step could not be recorded: operation not permitted when stream is capturing"
    assert use.unavailable in caplog.text


def test_without_a_cuda_device_the_setting_says_so_and_changes_nothing(tiny):
    model, folders = tiny()
    backbone = Backbone(model, backend="reference")
    config = EngineConfig(cuda_graphs="auto", segment_slots=64)
    with Engine(backbone, backbone.load_adapters(folders), make_scheme("pre_lr_shared"), config=config) as engine:
        assert len(engine.session().turn("plan", [3, 5], Sampling(max_new_tokens=3)).result.token_ids) == 3
        use = engine.stats().graphs
    assert (use.recorded, use.replayed, use.unavailable) == (0, 0, "the device is cpu, not cuda")


def test_large_steps_are_not_recorded():
    context = SimpleNamespace(kernels=SimpleNamespace(windows={}), translations=[], base_key_writes=[])
    many = DecodeGraphs(context, None, Replayer(), None)
    assert many.run([[0]] * 65) is None
    assert many.use.refused == {"more than 64 rows": 1}


def test_an_unknown_value_of_the_setting_is_refused():
    with pytest.raises(UsageError, match="cuda_graphs: 'on' is none of off, auto"):
        EngineConfig(cuda_graphs="on")
