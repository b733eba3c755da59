"""Reads one peft LoRA folder: validates the configuration, refuses what it cannot serve exactly, and says why."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import torch
from peft.utils.other import get_pattern_key
from safetensors import safe_open
from safetensors.torch import load_file

from agentrt.errors import AdapterError
from agentrt.model.lowrank import PROJECTIONS, LowRank, Site, from_peft

T = TypeVar("T")

_REFUSED: Final = {
    "use_dora": "DoRA rescales the base weights per adapter; retrain with use_dora=False",
    "lora_bias": "a bias on B is not cached; retrain with lora_bias=False",
    "modules_to_save": "fully trained modules differ per adapter; retrain without modules_to_save",
    "trainable_token_indices": "trained embeddings differ per adapter; retrain without trainable_token_indices",
    "layer_replication": "replicated layers change the backbone; retrain without layer_replication",
    "target_parameters": "LoRA on raw parameters is not supported; target the linear modules instead",
    "fan_in_fan_out": "transposed (Conv1D) weights are not supported; retrain with fan_in_fan_out=False",
    "use_qalora": "QA-LoRA pools its input; retrain as plain LoRA",
    "use_bdlora": "block-diagonal LoRA is not supported; retrain as plain LoRA",
    "arrow_config": "Arrow routes between adapters; load its adapters as roles of their own",
    "velora_config": "VeLoRA is not supported; retrain as plain LoRA",
    "monteclora_config": "MonteCLoRA is not supported; retrain as plain LoRA",
    "kasa_config": "KaSA is not supported; retrain as plain LoRA",
    "megatron_config": "Megatron-sharded adapters are not supported; convert to plain LoRA",
}
_BASE_CHANGING_INIT: Final = ("pissa", "olora", "corda", "loftq", "lora_ga", "mica")
_KEY: Final = re.compile(
    r"(?:base_model\.model\.)?(?P<path>(?:.*\.)?layers\.(?P<layer>\d+)\.(?:self_attn|mlp)\.(?P<projection>\w+))"
    r"\.lora_(?P<matrix>[AB])\.weight"
)


class ProjectionShape(NamedTuple):
    d_in: int
    d_out: int


@dataclass(frozen=True)
class AdapterFile:
    """One adapter's weights and the hash of their content (weights, ranks, scalings, invocation; no names, no paths).

    `invocation`: the tokens that activate it, if it is activated LoRA, else empty.
    """

    weights: Mapping[Site, LowRank]
    content_hash: str
    invocation: tuple[int, ...] = ()


def read_adapter(
    name: str,
    folder: Path,
    shapes: Mapping[Site, ProjectionShape],
    *,
    base_names: Collection[str],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> AdapterFile:
    """Load the peft folder of adapter `name`; `shapes` are the backbone's projections.

    Raises AdapterError naming the adapter, the feature and the fix.
    """

    def refuse(what: str) -> AdapterError:
        return AdapterError(f"adapter {name!r} ({folder}): {what}")

    config = _read_config(folder, refuse)
    _check_base(config, base_names, refuse)
    tensors = _read_tensors(folder, refuse)
    pairs: dict[Site, dict[str, torch.Tensor]] = {}
    paths: dict[Site, str] = {}
    for key, tensor in tensors.items():
        match = _match(key, refuse)
        site = Site(int(match["layer"]), match["projection"])
        pairs.setdefault(site, {})[match["matrix"]] = tensor
        paths[site] = match["path"]
    digest = hashlib.sha256()
    weights = {}
    for site in sorted(pairs):
        pair = pairs[site]
        where = f"layer {site.layer} {site.projection}"
        if site not in shapes:
            raise refuse(f"{where} does not exist in the backbone, which has {_num_layers(shapes)} layers")
        _check_pair(where, {matrix: tensor.shape[matrix == "B"] for matrix, tensor in pair.items()}, refuse)
        lora_a, lora_b = pair["A"], pair["B"]
        if (lora_a.shape[1], lora_b.shape[0]) != shapes[site]:
            raise refuse(
                f"{where} has A {list(lora_a.shape)} and B {list(lora_b.shape)}, the backbone maps "
                f"{shapes[site].d_in} to {shapes[site].d_out}; it belongs to another base model"
            )
        scaling = _scaling(config, paths[site], lora_a.shape[0])
        digest.update(f"{site.layer}.{site.projection}:{scaling!r}:{tuple(lora_a.shape)}".encode())
        for matrix in (lora_a, lora_b):
            digest.update(matrix.float().contiguous().numpy().tobytes())
        weights[site] = from_peft(lora_a, lora_b, scaling, dtype, device)
    invocation = _invocation(config, refuse)
    if invocation:
        digest.update(f"invocation:{invocation}".encode())
    return AdapterFile(weights, digest.hexdigest(), invocation)


def read_start(folder: Path, *, base_names: Collection[str], scaling: float) -> dict[str, torch.Tensor]:
    """The tensors, by peft's names, of an adapter that training is to go on from with `scaling` (alpha / rank).

    Raises AdapterError for a feature that is not served, another base or scaling, and a file that cannot be read.
    """

    def refuse(what: str) -> AdapterError:
        return AdapterError(f"{folder} is not an adapter to train on from: {what}")

    config = _read_config(folder, refuse)
    _check_base(config, base_names, refuse)
    tensors = _read_tensors(folder, refuse)
    for key, tensor in tensors.items():
        match = _match(key, refuse)
        rank = tensor.shape[match["matrix"] == "B"]
        its = _scaling(config, match["path"], rank)
        if not math.isclose(its, scaling):
            kind = " with rsLoRA" if config.get("use_rslora") else ""
            raise refuse(
                f"{match['path']} has rank {rank} and scaling {its:g}{kind}, this training scaling {scaling:g} "
                "(alpha / rank); give the rank and alpha it has, or train without a start"
            )
    return tensors


def check_adapter(name: str, folder: Path) -> tuple[int, ...]:
    """Check what can be checked of adapter `name` without a weight or a backbone; the tokens that activate it, if any.

    Reads the configuration and the names and shapes of the tensors. Raises AdapterError, as `read_adapter` would, for
    a feature that is not served, a target that takes no adapter, or an A and B of different ranks.
    """

    def refuse(what: str) -> AdapterError:
        return AdapterError(f"adapter {name!r} ({folder}): {what}")

    config = _read_config(folder, refuse)
    ranks: dict[str, dict[str, int]] = {}
    for key, shape in _read_shapes(folder, refuse).items():
        match = _match(key, refuse)
        ranks.setdefault(match["path"], {})[match["matrix"]] = shape[match["matrix"] == "B"]
    for path, pair in ranks.items():
        _check_pair(path, pair, refuse)
    return _invocation(config, refuse)


def _check_base(config: Mapping[str, Any], base_names: Collection[str], refuse: Any) -> None:
    base_name = config.get("base_model_name_or_path")
    if base_name and not any(_same_base(base_name, known) for known in base_names):
        raise refuse(f"trained for base model {base_name!r}, the backbone is {sorted(base_names)[0]!r}; load that base")


def _check_pair(where: str, ranks: Mapping[str, int], refuse: Any) -> None:
    """Refuse a pair that lacks a matrix, or whose matrices are not of one rank."""
    if ranks.keys() != {"A", "B"}:
        raise refuse(f"{where} has only lora_{next(iter(ranks))}; the file is damaged, save the adapter again")
    if not 0 < ranks["A"] == ranks["B"]:
        raise refuse(f"{where} has A of rank {ranks['A']} and B of rank {ranks['B']}; save the adapter again")


def _match(key: str, refuse: Any) -> re.Match[str]:
    match = _KEY.fullmatch(key)
    if match is None or match["projection"] not in PROJECTIONS:
        raise refuse(f"tensor {key!r} is not LoRA on one of {', '.join(PROJECTIONS)}; retrain with those targets")
    return match


def _read_config(folder: Path, refuse: Any) -> dict[str, Any]:
    path = folder / "adapter_config.json"
    if not path.is_file():
        raise refuse("no adapter_config.json there; give the folder that peft's save_pretrained wrote")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise refuse(f"adapter_config.json is not JSON ({error}); save the adapter again") from None
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise refuse(f"peft type {kind} is not supported; train a plain LoRA adapter")
    for feature, reason in _REFUSED.items():
        if config.get(feature):
            raise refuse(f"{feature}: {reason}")
    if config.get("bias", "none") != "none":
        raise refuse(f"bias={config['bias']!r}: trained biases differ per adapter; retrain with bias='none'")
    init = config.get("init_lora_weights")
    if isinstance(init, str) and init.startswith(_BASE_CHANGING_INIT):
        raise refuse(f"init_lora_weights={init!r} changes the base weights; convert it to plain LoRA with peft first")
    return config


def _invocation(config: Mapping[str, Any], refuse: Any) -> tuple[int, ...]:
    tokens = config.get("alora_invocation_tokens")
    if tokens is None:
        return ()
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int and token >= 0 for token in tokens):
        raise refuse(f"alora_invocation_tokens is {tokens!r}, not a list of token ids; without one it is never active")
    return tuple(tokens)


def _read_shapes(folder: Path, refuse: Any) -> dict[str, list[int]]:
    def shapes(path: Path) -> dict[str, list[int]]:
        with safe_open(path, "pt") as file:
            return {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118 - no mapping

    return _read_weights(folder, refuse, shapes)


def _read_tensors(folder: Path, refuse: Any) -> dict[str, torch.Tensor]:
    return _read_weights(folder, refuse, load_file)


def _read_weights(folder: Path, refuse: Any, read: Callable[[Path], T]) -> T:
    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        raise refuse("no adapter_model.safetensors there; save the adapter with safe_serialization")
    try:
        return read(path)
    except Exception as error:  # safetensors raises a bare Exception subclass of its own
        raise refuse(f"adapter_model.safetensors cannot be read ({error}); copy or save it again") from None


def _scaling(config: Mapping[str, Any], module_path: str, rank: int) -> float:
    """alpha / r, or alpha / sqrt(r) with rsLoRA; alpha and r by peft's own pattern rule, per layer."""
    patterns = config.get("alpha_pattern") or {}
    alpha = patterns.get(get_pattern_key(list(patterns), module_path), config.get("lora_alpha", 8))
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _same_base(trained_for: str, known: str) -> bool:
    """Hub ids (owner/name) compare whole; where one is a folder or a short name, only the last part can."""
    if _is_hub_id(trained_for) and _is_hub_id(known):
        return trained_for.lower() == known.lower()
    return Path(trained_for).name.lower() == Path(known).name.lower()


def _is_hub_id(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith((".", "/", "~"))


def _num_layers(shapes: Mapping[Site, ProjectionShape]) -> int:
    return 1 + max(site.layer for site in shapes)
