"""Rows of a dense check that stand in for others in some layers, perhaps only those a layer has chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch

from agentrt.step import Reused, Score


@dataclass(frozen=True)
class Choice:
    """At `layer` the `count` rows with the best scores are chosen."""

    layer: int
    count: int
    score: Score


@dataclass(frozen=True)
class Patch:
    """In `layers` the positions from `start` on are read from the rows numbered `rows`; with a `choice` only some."""

    start: int
    rows: tuple[int, ...]
    layers: tuple[int, ...]
    choice: Choice | None = None


class LayerRows(NamedTuple):
    """One layer of all rows of an episode: queries [rows, H, d], keys and full values [rows, Hkv, d]."""

    layer: int
    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    scale: float
    window: int | None


def patched(
    source: torch.Tensor, patches: tuple[Patch, ...], layer: int, chosen: Mapping[Patch, torch.Tensor]
) -> torch.Tensor:
    """The row read at each position, [T], where `source` says which it would be without patches."""
    source = source.clone()
    for patch in patches:
        if layer in patch.layers and patch.rows:
            rows = torch.tensor(patch.rows, device=source.device)
            at = chosen[patch] if patch.choice is not None else torch.arange(len(rows), device=source.device)
            source[patch.start + at] = rows[at]
    return source


def choose(
    patch: Patch, source: torch.Tensor, others: tuple[Patch, ...], at: LayerRows, chosen: Mapping[Patch, torch.Tensor]
) -> torch.Tensor:
    """Which rows of a patch its choice takes, ascending; `others` are what its agent has computed again before."""
    assert patch.choice is not None
    rows = torch.tensor(patch.rows, device=source.device)
    end = patch.start + len(rows)
    reused = patched(source[:end], others, at.layer, chosen)
    behind = torch.arange(patch.start, end, device=source.device)[:, None] - torch.arange(end, device=source.device)
    visible = (behind >= 0) & (behind < (at.window or end))
    held = Reused(at.keys[reused], at.values[reused], visible, at.scale)
    scores = patch.choice.score(at.queries[rows], at.keys[rows], at.values[rows], held)
    return scores.sort(descending=True, stable=True).indices[: patch.choice.count].sort().values
