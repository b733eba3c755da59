"""Tiny models and adapters shared by the equivalence tests."""

import random

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


def make(folder, name="llama", *, targets=("q_proj", "v_proj"), shared_a=False, **options):
    """A tiny model and three different adapters on it; with `shared_a` they have the same A everywhere."""
    model = tiny_model(**FAMILIES[name])
    folders = {
        agent: tiny_adapter(model, folder / agent, targets=targets, seed=seed, **options)
        for seed, agent in enumerate(AGENTS, 1)
    }
    if shared_a:
        donor = load_file(folders["plan"] / "adapter_model.safetensors")
        for agent in AGENTS[1:]:
            path = folders[agent] / "adapter_model.safetensors"
            tensors = load_file(path)
            save_file({key: donor[key] if "lora_A" in key else value for key, value in tensors.items()}, path)
    return model, folders


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
