"""Definitions of the schemes that repair a shared cache: layer by layer, full tensors, tokens chosen by sorting."""

import torch

from tests.reference.full import FullShared


class Selective(FullShared):
    """The sender's cache is full_shared's. Each agent has rows of its own beside it, by layer and position."""

    def __init__(self, model, agents, preamble=()):
        super().__init__(model, agents, preamble)
        self.reach = {}  # how far an agent has itself processed
        self.repaired = {}  # (agent, layer) -> {position: (k, v)}
        self.margin = float("inf")  # how clearly the worst token chosen so far beat the best one left

    def read(self, agent):
        read, shared = self.reach.get(agent, 0), self.length(("k", 0, "shared"))
        if read < shared:
            self.repair(agent, read, shared)
        self.reach[agent] = len(self.token_ids)
        return super().read(agent)

    def repair(self, agent, start, end):
        raise NotImplementedError

    def crop(self, length):
        super().crop(length)
        self.reach = {agent: min(reach, length) for agent, reach in self.reach.items()}
        self.repaired = {
            key: {position: rows for position, rows in own.items() if position < length}
            for key, own in self.repaired.items()
        }

    def best(self, rows, score, count):
        """The `count` of `rows` with the highest scores."""
        ranked = sorted(rows, key=lambda row: -score[row])
        if 0 < count < len(ranked):
            last, next_one = (float(score[row]) for row in ranked[count - 1 : count + 1])
            self.margin = min(self.margin, (last - next_one) / max(abs(last), 1e-12))
        return ranked[:count]

    def merged(self, agent, layer):
        """K and V of all tokens as `agent` reads them: its own rows where it has some."""
        keys, values = (rows.clone() for rows in super().merged(agent, layer))
        for position, (k, v) in self.repaired.get((agent, layer), {}).items():
            keys[position], values[position] = k, v
        return keys, values

    def keep(self, agent, layer, positions, k, v):
        own = self.repaired.setdefault((agent, layer), {})
        own.update({int(at): rows for at, *rows in zip(positions, k, v, strict=True)})

    def run(self, agent, layer, hidden, positions, *, own):
        """One layer over rows at `positions`, which attend to the merged cache; with `own` K and V are kept first."""
        q, k, v0, x = self.model.project(agent, layer, hidden, positions)
        if own:
            self.keep(agent, layer, positions, k, self.full_values(agent, layer, v0, x))
        return self.model.finish(agent, layer, hidden, q, *self.merged(agent, layer), positions)


class DroidSpeak(Selective):
    """`layers` are computed again, from the sender's input to the first of them."""

    def __init__(self, model, agents, preamble=(), *, layers):
        super().__init__(model, agents, preamble)
        self.layers = layers
        self.states = {}  # position -> input of layers[0], by whoever processed the token first

    def read(self, agent):
        start = self.length(("k", 0, "shared"))
        if not self.layers:
            return super().read(agent)
        inputs = []
        layer = self.model.stack.layers[self.layers[0]]
        hook = layer.input_layernorm.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
        logits = super().read(agent)
        hook.remove()
        self.states.update(zip(range(start, len(self.token_ids)), inputs[-1], strict=True))
        return logits

    def crop(self, length):
        super().crop(length)
        self.states = {position: state for position, state in self.states.items() if position < length}

    def repair(self, agent, start, end):
        if not self.layers:
            return
        positions = torch.arange(start, end)
        hidden = torch.stack([self.states[position] for position in range(start, end)])
        for layer in range(self.layers[0], self.layers[-1] + 1):
            hidden = self.run(agent, layer, hidden, positions, own=layer in self.layers)


class CacheBlend(Selective):
    def __init__(self, model, agents, preamble=(), *, ratio=0.3):
        super().__init__(model, agents, preamble)
        self.ratio = ratio

    def repair(self, agent, start, end):
        positions = torch.arange(start, end)
        hidden = self.run(agent, 0, self.model.embed(self.token_ids[start:end]), positions, own=True)
        _, k, v0, x = self.model.project(agent, 1, hidden, positions)
        values = self.full_values(agent, 1, v0, x)
        change = (values - self.caches["v", 1, "shared"][start:end]).pow(2).sum((1, 2))
        self.keep(agent, 1, positions, k, values)
        best = self.best(range(end - start), change, int(self.ratio * (end - start) + 1e-9))
        rows = torch.tensor(sorted(best), dtype=torch.long)
        hidden, positions = hidden[rows], positions[rows]
        for layer in range(1, self.model.num_layers if best else 1):
            hidden = self.run(agent, layer, hidden, positions, own=True)


class RelayCaching(Selective):
    """`first` and `last` bound the repaired layers, last included; tokens are chosen at layer `detect`."""

    TAIL = 10

    def __init__(self, model, agents, preamble=(), *, first=0, last=-1, detect=0, ratio=0.3):
        super().__init__(model, agents, preamble)
        self.first, self.last, self.detect, self.ratio = first, last, detect, ratio

    def repair(self, agent, start, end):
        if self.last < self.first:
            return
        positions = torch.arange(start, end)
        hidden = self.model.embed(self.token_ids[start:end])
        for layer in range(self.detect):
            hidden = self.run(agent, layer, hidden, positions, own=layer >= self.first)
        rows = self.choose(agent, hidden, positions)
        hidden, positions = hidden[rows], positions[rows]
        for layer in range(self.detect, self.last + 1):
            hidden = self.run(agent, layer, hidden, positions, own=True)

    def choose(self, agent, hidden, positions):
        layer, n, start = self.detect, len(positions), int(positions[0])
        q, k, v0, x = self.model.project(agent, layer, hidden, positions)
        values = self.full_values(agent, layer, v0, x).flatten(1)
        keys, reused = self.merged(agent, layer)
        reused = reused[start : start + n].flatten(1)
        deviation = 1 - torch.cosine_similarity(values, reused)
        tail = min(self.TAIL, n)
        attn = self.model.stack.layers[layer].self_attn
        weights = self.model.weights(q[-tail:], torch.cat([keys[:start], k]), positions[-tail:], attn)
        influence = weights.sum((0, 1))[start:]
        units = (1.5 * deviation.mean()).clamp_min(1e-12), (1.45 * influence.mean()).clamp_min(1e-12)
        score = torch.maximum(deviation / units[0], influence / units[1])
        best = self.best(range(n - tail), score, max(0, int(self.ratio * n + 1e-9) - tail))
        return torch.tensor(sorted([*best, *range(n - tail, n)]))
