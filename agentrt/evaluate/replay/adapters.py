"""Random adapters for replays: as peft folders of any rank, and, stronger, in memory for the equivalence check."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import torch
from safetensors.torch import save_file

from agentrt.config.problems import suggest
from agentrt.errors import UsageError
from agentrt.model.adapters import AdapterSet
from agentrt.model.lowrank import MLP, LowRank, Site
from agentrt.model.peft_folder import ProjectionShape

_LETTERS: Final[Mapping[str, str]] = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "o_proj",
    "g": "gate_proj",
    "u": "up_proj",
    "d": "down_proj",
}

CHECK_STRENGTH: Final = 0.5
"""Size of a low-rank term of the check's adapters relative to its input, root mean square."""


@dataclass(frozen=True)
class RandomAdapters:
    """`n` adapters (None: one for each agent) of rank `r` on the projections in `targets`, letters of q k v o g u d."""

    r: int = 8
    targets: str = "qv"
    n: int | None = None
    alpha: int = 16

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `r=8,targets=qv,n=3,alpha=16`; what is left out keeps its default. Raises UsageError."""
        values: dict[str, int | str] = {}
        for word in filter(None, (word.strip() for word in text.split(","))):
            key, _, value = word.partition("=")
            if key == "targets":
                unknown = sorted(set(value) - set(_LETTERS))
                if unknown or not value:
                    known = ", ".join(f"{letter} {name}" for letter, name in _LETTERS.items())
                    raise UsageError(f"--random-adapters targets={value}: letters are {known}; write e.g. targets=qv")
                values[key] = value
            elif key in ("r", "n", "alpha"):
                if not value.isdigit() or int(value) < 1:
                    raise UsageError(f"--random-adapters {word}: {key} is a whole number of at least 1")
                values[key] = int(value)
            else:
                tail = suggest(key, ("r", "targets", "n", "alpha"), "keys")
                raise UsageError(f"--random-adapters {word}: there is no key {key!r}{tail}")
        return replace(cls(), **values)  # type: ignore[arg-type]  # checked above

    def names(self, agents: Sequence[str]) -> list[str]:
        """The trace's agents, and where `n` asks for more, others that only hold columns. Raises UsageError."""
        wanted = len(agents) if self.n is None else self.n
        if wanted < len(agents):
            raise UsageError(f"--random-adapters n={wanted}: the trace has {len(agents)} agents: {', '.join(agents)}")
        return [*agents, *(f"idle{index + 1}" for index in range(wanted - len(agents)))]

    def __str__(self) -> str:
        count = "" if self.n is None else f",n={self.n}"
        return f"r={self.r},targets={self.targets}{count},alpha={self.alpha}"

    def write(
        self,
        names: Sequence[str],
        shapes: Mapping[Site, ProjectionShape],
        folder: Path,
        *,
        base_name: str,
        seed: int = 0,
        shared_a: bool = False,
    ) -> dict[str, Path]:
        """Write one peft folder for each name and return them. `shared_a`: all have the same A."""
        targets = [_LETTERS[letter] for letter in dict.fromkeys(self.targets)]
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base_name,
            "r": self.r,
            "lora_alpha": self.alpha,
            "target_modules": targets,
            "inference_mode": True,
        }
        folders = {}
        for index, name in enumerate(names):
            downs = torch.Generator().manual_seed(seed if shared_a else seed + index)
            ups = torch.Generator().manual_seed(seed + index + len(names))
            tensors = {}
            for site, shape in sorted(shapes.items()):
                if site.projection in targets:
                    block = "mlp" if site.projection in MLP else "self_attn"
                    key = f"base_model.model.model.layers.{site.layer}.{block}.{site.projection}"
                    tensors[f"{key}.lora_A.weight"] = _normal((self.r, shape.d_in), 0.5, downs, inner=1)
                    tensors[f"{key}.lora_B.weight"] = _normal((shape.d_out, self.r), 0.5, ups, inner=1)
            place = folders[name] = folder / name
            place.mkdir(parents=True)
            (place / "adapter_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
            save_file(tensors, place / "adapter_model.safetensors")
        return folders


def check_adapters(like: AdapterSet, *, seed: int, shared_a: bool) -> AdapterSet:
    """Adapters with the names, sites and ranks of `like`, random and strong enough that schemes differ clearly."""
    weights = {}
    for index, name in enumerate(like.names):
        downs = torch.Generator().manual_seed(seed if shared_a else seed + index)
        ups = torch.Generator().manual_seed(seed + index + len(like.names))
        sites = {}
        for site, old in sorted(like.weights[name].items()):
            down = _normal(old.down.shape, 1.0, downs, inner=0)
            up = _normal(old.up.shape, CHECK_STRENGTH, ups, inner=0)
            sites[site] = LowRank(down.to(old.down), up.to(old.up))
        weights[name] = sites
    return AdapterSet(weights, {name: f"check:{seed}:{name}" for name in like.names})


def _normal(shape: Sequence[int], gain: float, generator: torch.Generator, *, inner: int) -> torch.Tensor:
    """Random [*shape], so that a product over dimension `inner` keeps the input's size times `gain`."""
    return torch.randn(tuple(shape), generator=generator) * (gain / math.sqrt(shape[inner]))
