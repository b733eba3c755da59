"""The default backbone with the shipped adapters, fp32: non_shared equals transformers + peft token for token."""

import copy
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from peft import PeftModel

from agentrt.builtin import agents_dir, configs_dir
from agentrt.engine import Engine, EngineConfig
from agentrt.errors import BackboneError
from agentrt.model.backbone import Backbone
from agentrt.model.load import load_model
from agentrt.model.sampling import Sampling
from agentrt.schemes import SCHEMES
from agentrt.schemes.make import make_scheme
from agentrt.schemes.selective import Selective
from benchmarks.soak.records import Turned
from benchmarks.soak.replays import Comparison, replay_session

pytestmark = pytest.mark.real_model

ROLES = ("plan", "action", "reflect")
TURNS = [
    ("plan", 480, 24),
    ("action", 70, 12),
    ("plan", 260, 16),
    ("action", 8, 8),
    ("plan", 150, 8),
    ("reflect", 9, 12),
]
TIE = 1e-4
"""Where the two best logits are closer than this, either may come out first."""


@pytest.fixture(scope="module")
def loaded():
    try:
        return load_model("smollm2-135m", dtype="float32")
    except BackboneError as error:
        pytest.skip(f"the default backbone cannot be had here: {error}")


@pytest.fixture(scope="module")
def folders():
    return {role: agents_dir() / "search" / "adapters" / role for role in ROLES}


@pytest.fixture(scope="module")
def text_ids(loaded):
    lines = (configs_dir() / "mini" / "articles.jsonl").read_text(encoding="utf-8").splitlines()
    return loaded.tokenizer.encode(" ".join("".join(json.loads(line)["sentences"]) for line in lines))


@pytest.fixture(scope="module")
def backbone(loaded):
    return Backbone(copy.deepcopy(loaded.model), names=loaded.names)


def open_engine(backbone, folders, scheme, **limits):
    adapters = backbone.load_adapters(folders)
    return Engine(backbone, adapters, make_scheme(scheme), config=EngineConfig(**limits))


def test_non_shared_is_transformers_and_peft_over_a_long_trajectory(loaded, backbone, folders, text_ids):
    with open_engine(backbone, folders, "non_shared") as engine:
        session = engine.session()
        turns, offset = [], 0
        for role, context, new in TURNS:
            start = len(session.trajectory) + context
            session.turn(role, text_ids[offset : offset + context], Sampling(max_new_tokens=new)).result  # noqa: B018
            turns.append((role, start))
            offset += context
        ids = list(session.trajectory.token_ids)
    assert len(ids) == sum(context + new for _, context, new in TURNS) > 1000
    peft = PeftModel.from_pretrained(copy.deepcopy(loaded.model), str(folders["plan"]), "plan")
    for role in ROLES[1:]:
        peft.load_adapter(str(folders[role]), role)
    ends = [start for _, start in turns[1:]] + [len(ids)]
    for role in ROLES:  # one forward over everything per role: its own turns' tokens are read off
        peft.set_adapter(role)
        with torch.inference_mode():
            logits = peft(input_ids=torch.tensor([ids])).logits[0]
        for (speaker, start), end, (_, _, new) in zip(turns, ends, TURNS, strict=True):
            if speaker != role:
                continue
            for position in range(start, min(start + new, end)):
                best = logits[position - 1].topk(2)
                close = float(best.values[0] - best.values[1]) < TIE
                assert ids[position] == int(best.indices[0]) or close, (role, position)


READ_AGAIN = {
    "non_shared",
    "own_kv",
    "base_shared",
    *(name for name, kind in SCHEMES.items() if issubclass(kind, Selective)),
}
"""Here a speaker computes what others wrote, or some layers of it, once more."""


SPECIAL = {"base_lr_shared", "alora", "ridge"}
"""These need adapters of a kind of their own, or maps fitted for them."""


FEW = ("pre_lr_shared", "rebase_shared")
OTHERS = (pytest.param(scheme, marks=pytest.mark.slow) for scheme in sorted(SCHEMES.keys() - {*FEW, *SPECIAL}))


@pytest.mark.parametrize("scheme", [*FEW, *OTHERS])
def test_every_scheme_continues_a_shared_trajectory(backbone, folders, text_ids, scheme):
    """All agree with non_shared in the first turn, then may differ; nothing is read twice but where it must be."""
    with open_engine(backbone, folders, scheme) as engine, open_engine(backbone, folders, "non_shared") as exact:
        first = []
        for each in (engine, exact):
            session = each.session()
            first.append(session.turn("plan", text_ids[:300], Sampling(max_new_tokens=12)).result.token_ids)
            usage = session.turn("action", text_ids[300:310], Sampling(max_new_tokens=4)).result.usage
            session.close()
            assert usage.reused_tokens == (0 if each.scheme_name in READ_AGAIN else 311)
            assert each.stats().held_bytes == 0
        assert first[0] == first[1]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["pre_lr_shared", "rebase_shared:auto", "rebase_shared:db", "cacheblend"])
def test_eight_sessions_at_once_say_what_each_says_alone(backbone, folders, text_ids, scheme):
    """Token for token, but for near ties: after one the two go on from different words, so the session ends there."""

    def play(engine, seed):
        turns, at = [], 150 * seed
        with engine.session() as session:
            for role, context, new in ((seed, 40 + 9 * seed, 8), (seed + 1, 11, 5), (seed + 2, 30, 5)):
                ids = tuple(text_ids[at : at + context])
                turn = session.turn(ROLES[role % 3], ids, Sampling(max_new_tokens=new))
                turns.append(Turned(ROLES[role % 3], ids, turn.result.token_ids))
                at += context
        return turns

    alone = Comparison()
    with open_engine(backbone, folders, scheme, max_step_tokens=128, ride_rows=16) as engine:
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda seed: play(engine, seed), range(8)))
        assert engine.stats().steps < 8 * 18, "they ran in common steps"
        for turns in together:
            replay_session(engine, tuple(turns), alone)
    assert alone.faults == []
    assert alone.same >= 20
    assert alone.near_ties <= 2
