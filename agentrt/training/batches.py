"""Order of the examples and how they are padded into tensors. Deterministic in (seed, pass)."""

import random
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import torch

from agentrt.training.examples import Example

PAD_MULTIPLE: Final = 32  # tokens; few distinct lengths, because oneDNN prepares a kernel for each new shape


class Batch(NamedTuple):
    """`token_ids` `[sequences, tokens]`, padded on the right; row `rows[i]` of it, flattened, predicts `labels[i]`."""

    token_ids: torch.Tensor
    rows: torch.Tensor
    labels: torch.Tensor


def shuffled_steps(num_examples: int, per_step: int, seed: int) -> Iterator[list[int]]:
    """Endless optimiser steps of `per_step` indices; every pass visits each example once, in an order of its own."""
    waiting: list[int] = []
    passes = 0
    while True:
        while len(waiting) < per_step:
            order = list(range(num_examples))
            random.Random(f"{seed}:{passes}").shuffle(order)
            waiting.extend(order)
            passes += 1
        yield waiting[:per_step]
        waiting = waiting[per_step:]


def split_by_tokens(examples: Sequence[Example], max_tokens: int) -> Iterator[list[Example]]:
    """Groups whose padded size stays within `max_tokens`, longest first; an example longer than that goes alone."""
    group: list[Example] = []
    for example in sorted(examples, key=lambda e: (-len(e.token_ids), e.id)):
        if group and _padded(len(group[0].token_ids)) * (len(group) + 1) > max_tokens:
            yield group
            group = []
        group.append(example)
    if group:
        yield group


def collate(examples: Sequence[Example], *, pad_id: int = 0) -> Batch:
    width = _padded(max(len(e.token_ids) for e in examples))
    token_ids = torch.full((len(examples), width), pad_id, dtype=torch.long)
    rows: list[int] = []
    labels: list[int] = []
    for index, example in enumerate(examples):
        token_ids[index, : len(example.token_ids)] = torch.tensor(example.token_ids)
        rows.extend(index * width + target - 1 for target in example.targets)
        labels.extend(example.token_ids[target] for target in example.targets)
    return Batch(token_ids, torch.tensor(rows), torch.tensor(labels))


def _padded(length: int) -> int:
    return -(-length // PAD_MULTIPLE) * PAD_MULTIPLE
