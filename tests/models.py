"""Tiny models and adapters shared by the equivalence tests."""

import atexit
import copy
import functools
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from agentrt.model.tiny import tiny_adapter, tiny_model

AGENTS = ("plan", "action", "reflect")

FAMILIES = {
    "llama": {"family": "llama"},
    "qwen2": {"family": "qwen2"},
    "qwen3": {"family": "qwen3"},
    "smollm3": {"family": "smollm3"},
    "mistral": {"family": "mistral"},
    "mistral-window": {"family": "mistral", "sliding_window": 19},
    "ministral-window": {"family": "ministral", "sliding_window": 23},
}

SLOW = ("smollm3", "mistral", "ministral-window")

every_family = pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in FAMILIES]
)
"""For what takes long: rotation, a norm, a bias and a window by default, all of them among the slow."""


@functools.cache
def scratch():
    """A folder for files that all tests of this process read and none changes."""
    folder = tempfile.mkdtemp(prefix="agentrt-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


_made = {}


def make(name="llama", *, targets=("q_proj", "v_proj"), shared_a=False, **options):
    """A tiny model, the caller's own, and folders of three adapters on it, made once a process: not to be changed.

    The adapters differ; with `shared_a` they have the same A everywhere. `options` are those of `tiny_adapter`.
    """
    key = repr((name, tuple(targets), shared_a, sorted(options.items())))
    if key not in _made:
        model = tiny_model(**FAMILIES[name])
        folder = scratch() / f"made{len(_made)}"
        folders = {
            agent: tiny_adapter(model, folder / agent, targets=targets, seed=seed, **options)
            for seed, agent in enumerate(AGENTS, 1)
        }
        if shared_a:
            share_a(folders.values())
        _made[key] = model, folders
    model, folders = _made[key]
    return copy.deepcopy(model), dict(folders)


def share_a(folders):
    """Give all adapters the A of the first."""
    donor, *others = (folder / "adapter_model.safetensors" for folder in folders)
    shared = load_file(donor)
    for file in others:
        save_file({key: shared[key] if "lora_A" in key else value for key, value in load_file(file).items()}, file)


def random_turns(seed, count=7, agents=AGENTS, vocab=211):
    """Turns (agent, context ids, generated ids) of odd lengths with handovers between all agents."""
    rng = random.Random(seed)
    turns = []
    for index in range(count):
        agent = agents[index % len(agents)] if index < len(agents) else rng.choice(agents)
        context = [rng.randrange(vocab) for _ in range(rng.choice([1, 3, 7, 13, 18]))]
        forced = [rng.randrange(vocab) for _ in range(rng.choice([1, 2, 5, 6]))]
        turns.append((agent, context, forced))
    return turns
