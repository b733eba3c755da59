"""ridge against its dense definition; its file of maps, and what that is refused for; its bytes."""

import copy
import shutil

import pytest
import torch

from agentrt.engine import Engine, EngineConfig
from agentrt.errors import SchemeError, TurnCancelledError
from agentrt.evaluate.ridge import fit_ridge, write_ridge
from agentrt.model.backbone import Backbone
from agentrt.model.ridge import RidgeMap, load_maps, rotate, save_maps, unrotate
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_adapter
from agentrt.schemes.make import make_scheme
from tests.models import AGENTS, make, random_turns
from tests.reference.dense import dense_model
from tests.reference.held import assert_close
from tests.reference.routekv import Ridge
from tests.rig import Rig

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")


def random_maps(tmp_path, model, folders):
    """A file of strong random maps for these adapters, and the maps by name."""
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    generator = torch.Generator().manual_seed(5)

    def draw():
        noise = torch.randn(
            backbone.num_layers, backbone.num_kv_heads, backbone.head_dim, backbone.head_dim, generator=generator
        )
        return torch.eye(backbone.head_dim) + 0.3 * noise

    maps = {name: RidgeMap(draw(), draw(), torch.rand(3, generator=generator), frozenset(range(3))) for name in folders}
    file = tmp_path / "maps.safetensors"
    save_maps(file, {adapters.hashes[name]: each for name, each in maps.items()}, backbone_hash=backbone.content_hash)
    return file, maps


def translator(model, maps, top=3):
    """Written from the definition: turn keys back by position, map each head, turn them again."""

    def angles(positions, layer):
        if not getattr(model.model.layers[layer].self_attn, "use_rope", True):
            return torch.ones(len(positions), 1, 1), torch.zeros(len(positions), 1, 1)
        cos, sin = model.model.rotary_emb(torch.zeros(1), position_ids=positions[None])
        return cos[0][:, None], sin[0][:, None]

    def turn(rows, cos, sin):
        half = rows.shape[-1] // 2
        return rows * cos + torch.cat([-rows[..., half:], rows[..., :half]], -1) * sin

    def translate(agent, layer, k, v, start):
        if layer not in maps[agent].gains.argsort(descending=True)[:top]:
            return k, v
        cos, sin = angles(torch.arange(start, start + len(k)), layer)
        bare = torch.stack([turn(k, cos, -sin)[:, h] @ maps[agent].keys[layer, h] for h in range(k.shape[1])], 1)
        values = torch.stack([v[:, h] @ maps[agent].values[layer, h] for h in range(v.shape[1])], 1)
        return turn(bare, cos, sin), values

    return translate


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("top", [3, 1, 0])
@pytest.mark.parametrize("family", ["llama", "qwen3", "smollm3", "mistral-window"])
def test_it_equals_its_dense_definition(tmp_path, family, top, chunk):
    model, folders = make(family, targets=QKVO)
    file, maps = random_maps(tmp_path, model, folders)
    preamble = [5, 9, 9, 13, 2]
    rig = Rig(model, folders, f"ridge:{file},top={top}", preamble=preamble, chunk=chunk)
    dense = dense_model(model, folders)
    reference = Ridge(dense, AGENTS, preamble, translate=translator(dense.model, maps, top))
    for agent, context, forced in random_turns(seed=21):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    for layer in range(3):
        for part in ("k", "v"):
            assert_close(rig.dense("base", part, layer), reference.caches[part, layer], (part, layer))
            for agent in AGENTS:
                assert_close(rig.dense(f"own:{agent}", part, layer), reference.caches[part, layer, agent], agent)


def test_bytes_are_a_neutral_cache_and_one_per_agent(tmp_path):
    model, folders = make()
    file, _ = random_maps(tmp_path, model, folders)
    rig = Rig(model, folders, f"ridge:{file}")
    kv, seen = rig.store.planes["kv"].spec.row_bytes, {}
    for agent, context, forced in random_turns(seed=22):
        rig.turn(agent, context, forced)
        seen[agent] = rig.trajectory.num_processed
        assert rig.store.held_bytes == (rig.trajectory.num_processed + sum(seen.values())) * kv == rig.store.peak_bytes


def test_the_engine_serves_it_and_shares_the_neutral_preamble(tmp_path):
    model, folders = make()
    file, _ = random_maps(tmp_path, model, folders)
    backbone = Backbone(copy.deepcopy(model))
    limits = EngineConfig(poison=True, segment_slots=64, max_step_tokens=5)
    with Engine(backbone, backbone.load_adapters(folders), make_scheme(f"ridge:{file}"), config=limits) as engine:
        found = []
        for _ in range(2):
            session = engine.session(list(range(20)))
            for agent, context, forced in random_turns(seed=23):
                session.turn(agent, context, Sampling(max_new_tokens=len(forced))).result  # noqa: B018
            found.append(session.trajectory.token_ids)
            cancelled = session.turn("plan", [1, 2], Sampling(max_new_tokens=90))
            next(iter(cancelled))
            cancelled.cancel()
            with pytest.raises(TurnCancelledError):
                cancelled.result  # noqa: B018
            session.crop(25)
            assert session.turn("", [3], Sampling(max_new_tokens=2)).result.token_ids
            engine.check_integrity()
        assert found[0] == found[1]
        (use,) = engine.stats().preambles
        assert (use.path, use.hits, use.misses, use.reused_tokens) == ("", 1, 1, 20)


def test_maps_of_another_backbone_or_adapter_are_refused_by_name(tmp_path):
    model, folders = make()
    folders["action"] = shutil.copytree(folders["action"], tmp_path / "action")  # to be changed here
    file, _ = random_maps(tmp_path, model, folders)
    with pytest.raises(SchemeError, match=r"no maps; fit them.*ridge:maps=FILE"):
        Rig(model, folders, "ridge")
    with pytest.raises(SchemeError, match=r"absent.* is no file of ridge maps"):
        Rig(model, folders, f"ridge:{tmp_path / 'absent'}")
    with pytest.raises(SchemeError, match="fitted for another backbone"):
        load_maps(file, {}, backbone_hash="another", device=torch.device("cpu"))
    with pytest.raises(SchemeError, match="top is 4, the backbone has 3 layers"):
        Rig(model, folders, f"ridge:{file},top=4")
    with pytest.raises(SchemeError, match="top is -1; write `all`, or a number of layers"):
        make_scheme(f"ridge:{file},top=-1")
    tiny_adapter(model, folders["action"], seed=77)
    with pytest.raises(SchemeError, match="no maps for adapter 'action' as it is now; fit them again"):
        Rig(model, folders, f"ridge:{file}")


def test_unrotate_undoes_rope_whatever_its_scale():
    rows = torch.randn(7, 2, 8)
    angle = torch.rand(7, 1, 4).repeat(1, 1, 2)
    cos, sin = 1.3 * angle.cos(), 1.3 * angle.sin()
    torch.testing.assert_close(unrotate(rotate(rows, cos, sin), cos, sin), rows)


def test_fitted_maps_are_stored_and_served(tmp_path):
    model, folders = make()
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    fit = fit_ridge(backbone, adapters, [[i * 7 % 211 for i in range(60)]])
    write_ridge(tmp_path / "maps.safetensors", fit, backbone, adapters)
    loaded = backbone.load_maps(tmp_path / "maps.safetensors", adapters, top=1).maps
    for name in AGENTS:
        assert torch.equal(loaded[name].keys, fit.maps[name].keys)
        assert loaded[name].layers == {int(fit.maps[name].gains.argmax())}
    rig = Rig(model, folders, f"ridge:{tmp_path / 'maps.safetensors'}")
    assert torch.isfinite(rig.turn("plan", [1, 2, 3], [4, 5])).all()
    assert torch.isfinite(rig.turn("action", [1, 2, 3], [4, 5])).all()
