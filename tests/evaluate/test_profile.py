"""Profiles: layers follow from the probes, and their file serves one backbone and its adapters only."""

import copy
import json
from pathlib import Path

import pytest

from agentrt.engine import Engine
from agentrt.errors import SchemeError, UsageError
from agentrt.evaluate.profile.job import facts, probed_schemes, run_profile
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.schemes.layer_file import write_layer_file
from agentrt.schemes.make import make_scheme
from tests.evaluate.test_forced import make_sample
from tests.models import AGENTS

SELECTIVE = ("droidspeak", "droidspeak_scattered", "relay_caching")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Backbone, AdapterSet]:
    """Four layers. Only layer 2 has adapters, on its values, so only there does a sender's row differ in itself."""
    folder = tmp_path_factory.mktemp("profile")
    model = tiny_model("llama", layers=4)
    folders = {
        agent: tiny_adapter(model, folder / agent, targets=("v_proj",), seed=seed, layers_to_transform=[2])
        for seed, agent in enumerate(AGENTS, 1)
    }
    backbone = Backbone(copy.deepcopy(model), content_hash="one")
    return backbone, backbone.load_adapters(folders)


def test_the_layer_that_adapters_change_is_the_one_that_is_computed_again(tiny: tuple[Backbone, AdapterSet]) -> None:
    seen: list[tuple[float, float]] = []
    samples = [make_sample(seed, count=4) for seed in (3, 4)]
    profiles = run_profile(*tiny, samples, report=lambda _, done, total: seen.append((done, total)))
    by_scheme = {each.scheme: each for each in profiles}
    assert tuple(by_scheme) == SELECTIVE
    single = by_scheme["droidspeak_scattered"]
    assert set(single.values) == {"0", "1", "2", "3"}
    assert single.layers == "2"
    assert single.values["2"] == max(single.values.values()) > 1e-4
    assert single.values["0"] < 1e-6
    assert single.values["1"] < 1e-6
    group = by_scheme["droidspeak"]
    assert set(group.values) == {"0-0", "1-1", "2-2", "3-3"}
    assert group.layers == "2-2"
    assert by_scheme["relay_caching"].layers == "2-2"
    assert seen[-1] == (2 * (1 + 12), 2 * (1 + 12))
    assert facts(profiles, samples, 0.3)["kl_by_probe"]["droidspeak"] == group.values


def test_a_larger_share_makes_wider_groups(tiny: tuple[Backbone, AdapterSet]) -> None:
    (profile,) = run_profile(*tiny, [make_sample(3, count=3)], schemes="droidspeak", share=0.5)
    assert set(profile.values) == {"0-1", "1-2", "2-3"}
    assert profile.layers in ("1-2", "2-3")
    with pytest.raises(UsageError, match="above 0 up to 1"):
        run_profile(*tiny, [make_sample(3)], share=0)


def test_only_schemes_with_layers_can_be_profiled() -> None:
    assert probed_schemes("all") == list(SELECTIVE)
    with pytest.raises(UsageError, match="did you mean 'droidspeak'"):
        probed_schemes("droidspaek")
    with pytest.raises(UsageError, match="at least one"):
        probed_schemes(",")


def make_file(folder: Path, adapters: AdapterSet, backbone_hash: str = "one") -> str:
    file = folder / "layers.json"
    layers = {"droidspeak": "1-2", "droidspeak_scattered": "0+2", "relay_caching": "2-3"}
    write_layer_file(file, layers, backbone_hash=backbone_hash, adapter_hashes=adapters.hashes, facts={"share": 0.5})
    return str(file)


def test_schemes_take_the_file_as_their_layers(tiny: tuple[Backbone, AdapterSet], tmp_path: Path) -> None:
    backbone, adapters = tiny
    file = make_file(tmp_path, adapters)
    for name, wanted in (("droidspeak", "1-2"), ("droidspeak_scattered", "0+2"), ("relay_caching", "2-3")):
        with Engine(backbone, adapters, make_scheme(f"{name}:layers={file}")) as engine:
            assert engine.scheme.options()["layers"] == wanted
            assert engine.scheme == make_scheme(name, {"layers": wanted})


def test_the_file_of_another_backbone_or_other_adapters_is_refused(
    tiny: tuple[Backbone, AdapterSet], tmp_path: Path
) -> None:
    backbone, adapters = tiny
    scheme = make_scheme("droidspeak", {"layers": make_file(tmp_path, adapters, backbone_hash="other")})
    with pytest.raises(SchemeError, match=r"measured on another backbone; run `agentrt profile` for this one"):
        Engine(backbone, adapters, scheme)
    model = tiny_model("llama", layers=4)
    changed = tiny_adapter(model, tmp_path / "changed", targets=("v_proj",), seed=77)
    others = backbone.load_adapters({"plan": changed})
    scheme = make_scheme("relay_caching", {"layers": make_file(tmp_path, adapters)})
    with pytest.raises(SchemeError, match=r"adapter 'plan' as it is now; run `agentrt profile` for these adapters"):
        Engine(backbone, others, scheme)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"kind": "layers", "backbone": "one", "adapters": [], "layers": {}}']
)
def test_a_file_of_something_else_is_refused(tiny: tuple[Backbone, AdapterSet], tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    for path in (file, tmp_path / "absent.json"):
        with pytest.raises(SchemeError, match="is no file of measured layers"):
            Engine(*tiny, make_scheme("droidspeak", {"layers": str(path)}))


def test_a_file_without_the_scheme_says_which_it_has(tiny: tuple[Backbone, AdapterSet], tmp_path: Path) -> None:
    backbone, adapters = tiny
    file = Path(make_file(tmp_path, adapters))
    stored = json.loads(file.read_text())
    del stored["layers"]["droidspeak"]
    file.write_text(json.dumps(stored))
    with pytest.raises(SchemeError, match="it has: droidspeak_scattered, relay_caching"):
        Engine(backbone, adapters, make_scheme("droidspeak", {"layers": str(file)}))
