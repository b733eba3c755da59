"""The engine through Triton (interpreted) gives the tokens of the torch path, for every scheme; where a host waits."""

import copy
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentrt.cache.slots import Run
from agentrt.cache.store import CacheStore, Claim
from agentrt.cache.view import View
from agentrt.engine import Engine, EngineConfig
from agentrt.errors import AdapterError, BackboneError
from agentrt.model import attention, context, kernels
from agentrt.model.backbone import Backbone
from agentrt.model.ridge import RidgeMap, save_maps
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_adapter, tiny_model, tiny_tokenizer
from agentrt.schemes import SCHEMES
from agentrt.schemes.make import make_scheme
from agentrt.step import Pass, Step, Write
from agentrt_kernels.dispatch import resolve
from tests.device_double import Memory, Waiting

QV, QK, QKVO = ("q_proj", "v_proj"), ("q_proj", "k_proj"), ("q_proj", "k_proj", "v_proj", "o_proj")
SPELLED = (
    *SCHEMES,
    *(f"neutral_prefix:{boundary}" for boundary in ("native", "early", "full")),
    *(f"rebase_shared:{how}" for how in ("lp", "db", "fused", "lp,pivot=plan", "auto,adapted_tail=2")),
)
"""Every scheme, neutral_prefix at each boundary, rebase_shared by each schedule, with a pivot and with a tail."""
CASES = [
    *(("ministral", name, targets) for name in SPELLED for targets in (QV, QKVO)),
    ("ministral", "pre_lr_shared", QK),
    *((family, name, QKVO) for family in ("qwen3", "smollm3") for name in (*SCHEMES, "rebase_shared:db")),
]
"""A model with a sliding layer, one with a norm on keys, one whose second layer does not rotate keys."""
CORE = {
    *(("ministral", name, QV) for name in ("rebase_shared:db", "cacheblend", "alora")),
    *((family, "pre_lr_shared", QKVO) for family in ("ministral", "qwen3", "smollm3")),
}
"""One of each way to run; the others are slow."""
WITH_COLUMNS = ("base_shared", "base_lr_shared", "pre_lr_shared", "rebase_shared")
SELECTIVE = ("cacheblend", "relay_caching", "droidspeak", "droidspeak_scattered")
CHOICES = {"cacheblend": 3, "relay_caching": 3}
"""How often a session chooses rows: in every turn but the first; the last chooses beside rows chosen before."""
INVOCATIONS = {"plan": [9, 11], "action": [12]}
TURNS = [("plan", [3, 5, 9, 11, 40, 7, 2], 3), ("action", [12, 6], 3), ("plan", [77, 78, 79], 2)]
ONE_MORE = [("action", [12, 4], 2)]


@pytest.fixture
def tiny(tmp_path):
    """tiny(scheme, targets, family): a model with head_dim 16, two adapters of different ranks that the scheme takes,
    and the scheme with what else it needs."""

    def build(scheme, targets, family="ministral"):
        layers = 3 if scheme in SELECTIVE else 2
        model = tiny_model(family, layers=layers, head_dim=16, sliding_window=9 if family == "ministral" else None)
        shared_a = scheme == "base_lr_shared"
        folders = {}
        for name, rank in (("plan", 4), ("action", 4 if shared_a else 6)):
            activated = {"alora_invocation_tokens": INVOCATIONS[name]} if scheme == "alora" else {}
            folders[name] = tiny_adapter(model, tmp_path / name, r=rank, targets=targets, seed=rank, **activated)
        if scheme == "ridge":
            scheme = f"ridge:{write_maps(tmp_path / 'maps.safetensors', model, folders)}"
        if shared_a:
            plan, action = (folder / "adapter_model.safetensors" for folder in folders.values())
            donor = load_file(plan)
            save_file({k: donor[k] if "lora_A" in k else v for k, v in load_file(action).items()}, action)
        return model, folders, scheme

    return build


def write_maps(file, model, folders):
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    eye = torch.eye(16).expand(2, 2, 16, 16)  # layers, heads
    maps = {
        adapters.hashes[name]: RidgeMap(eye + 0.3 * torch.randn_like(eye), 1.1 * eye, torch.ones(2), frozenset((0, 1)))
        for name in folders
    }
    save_maps(file, maps, backbone_hash=backbone.content_hash)
    return file


class Watched(Backbone):
    """Counts what the host would have to wait for in a step, if the model and the planes were on a device."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.waits = Counter()
        self._memory = Memory()

    def run(self, *args):
        with Waiting(self._memory) as seen:
            try:
                return super().run(*args)
            finally:
                self.waits += seen.waits


def play(backbone, folders, scheme):
    """The tokens of two sessions whose steps may be packed together."""
    config = EngineConfig(segment_slots=16, poison=True, ride_rows=3)
    with Engine(backbone, backbone.load_adapters(folders), make_scheme(scheme), config=config) as engine:
        sessions = [engine.session([7, 8, 9]), engine.session()]
        for agent, context, count in TURNS + ONE_MORE * (scheme in SELECTIVE):
            turns = [session.turn(agent, context, Sampling(max_new_tokens=count)) for session in sessions]
            for turn in turns:
                assert turn.result is not None
        return [session.trajectory.token_ids for session in sessions]


def watch(monkeypatch):
    """How often torch reads for a pass or makes what only it needs, and how often each kernel is launched."""
    counts = Counter()

    def counted(owner, name, label):
        call = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **named: counts.update([label]) or call(*args, **named))

    counted(attention, "_read", "torch")
    counted(context, "Masks", "masks")
    counted(context, "overlaid_pieces", "masks")
    counted(kernels, "attend_planned", "attend")
    counted(kernels.kv_append, "append", "append")
    counted(kernels.lr_project, "project", "project")
    counted(kernels.lora_shrink_expand, "shrink_expand", "terms")
    return counts


@pytest.mark.parametrize(
    ("family", "scheme", "targets"),
    [case if case in CORE else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
    ids=lambda part: part if isinstance(part, str) else "".join(name[0] for name in part),
)
def test_triton_gives_the_tokens_of_the_torch_path_and_waits_where_rows_are_chosen(
    tiny, family, scheme, targets, monkeypatch
):
    model, folders, scheme = tiny(scheme, targets, family)
    want = play(Backbone(copy.deepcopy(model), backend="reference"), folders, scheme)
    counts = watch(monkeypatch)
    backbone = Watched(model, backend="triton")
    assert play(backbone, folders, scheme) == want
    assert backbone.waits == Counter(to=2 * CHOICES.get(scheme, 0))
    assert counts["torch"] == 0
    assert counts["masks"] == 0  # on a GPU the host would wait for them
    assert counts["attend"] > 0
    assert counts["append"] >= counts["attend"]  # every layer of a step writes before it reads
    assert counts["terms"] > 0
    assert bool(counts["project"]) == (scheme.partition(":")[0] in WITH_COLUMNS)


@pytest.mark.parametrize(
    ("plane", "slot", "message"),
    [
        ("kv", 1000, r"targets\[0\]: rows 1000 \+ 3 of segment 0 do not exist"),
        ("lr:plan", 1000, r"deposits\[0\]\.targets\[0\]: rows 1000 \+ 3 of segment 0 do not exist"),
        ("view", 1000, r"passes\[0\]\.runs: kv rows 1000 \+ 3 are past the segment's end"),
    ],
)
def test_tables_out_of_range_are_found_where_slots_are_poisoned(tiny, plane, slot, message):
    model, folders, _ = tiny("pre_lr_shared", QV)
    backbone = Backbone(model, backend="triton")
    adapters = backbone.load_adapters(folders)
    layout = backbone.layout(adapters)
    specs = make_scheme("pre_lr_shared").planes(layout)
    store = CacheStore(specs, device=backbone.device, segment_slots=16, poison=True)
    good = store.reserve([Claim(spec.name, 3) for spec in specs])
    runs = dict(zip((spec.name for spec in specs), good, strict=True))
    runs["view"] = runs["kv"]
    runs[plane] = (Run(slot, 3),)
    writes = tuple(Write(spec.name, 0, runs[spec.name]) for spec in specs)
    step = Step((Pass("plan", (3, 4, 5), 0, View("kv", runs["view"]), writes, "base", "last"),))
    with pytest.raises(ValueError, match=message):
        backbone.run(step, store.planes, adapters)


def test_triton_is_refused_by_name_where_it_cannot_run():
    model = tiny_model(head_dim=8)
    with pytest.raises(BackboneError, match="backend: triton cannot run here: the model: head_dim 8 is not supported"):
        Backbone(model, backend="triton")


def test_the_backend_can_be_named_where_the_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTRT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    tiny_model(head_dim=16, vocab_size=259).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    chosen = {}
    for backend in ("auto", "triton"):
        with Engine.load(str(folder), backend=backend, device="cpu", dtype="float32") as engine:
            chosen[backend] = engine.backbone.backend
    assert chosen == {"auto": "jit", "triton": "triton"}


def test_an_adapter_beyond_the_kernels_rank_is_refused_at_load(tmp_path):
    model = tiny_model(head_dim=16)
    folder = tiny_adapter(model, tmp_path / "plan", r=129)
    with pytest.raises(AdapterError, match="adapter 'plan' has rank 129, the Triton kernels take 128 at most"):
        Backbone(copy.deepcopy(model), backend="triton").load_adapters({"plan": folder})
    Backbone(model).load_adapters({"plan": folder})


def test_explicit_beats_automatic():
    shape = {"head_dim": 64, "dtype": torch.bfloat16}
    assert resolve("auto", "cpu", **shape) == "jit"
    assert resolve("reference", "cuda", **shape) == "reference"
    assert resolve("auto", "cuda", **shape) == "triton"
    assert resolve("auto", "cuda", head_dim=512, dtype=torch.bfloat16) == "reference"
    with pytest.raises(ValueError, match="float64"):
        resolve("triton", "cuda", head_dim=64, dtype=torch.float64)
    with pytest.raises(ValueError, match="backend: 'cuda' is none of auto"):
        resolve("cuda", "cuda", **shape)
