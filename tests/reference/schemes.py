"""The definition of each scheme over `DenseModel`, one class a scheme: full tensors, one token span at a time."""

import torch

from tests.reference.dense import DenseModel


def grow(store, key, rows):
    """Append rows to a named dense tensor and return it whole."""
    store[key] = torch.cat([store[key], rows]) if key in store else rows
    return store[key]


class Reference:
    """`turn(agent, context, forced)` returns the logits after the context and after each forced token but the last.

    The last sampled token of a turn stays unread until the next turn.
    """

    def __init__(self, model: DenseModel, agents, preamble=()):
        self.model, self.agents = model, list(agents)
        self.token_ids = list(preamble)
        self.preamble = len(preamble)
        self.caches = {}  # (kind, layer, ...) -> dense tensor

    def turn(self, agent, context, forced):
        self.token_ids += context
        logits = [self.read(agent)[-1]]
        for token_id in forced[:-1]:
            self.token_ids.append(token_id)
            logits.append(self.read(agent)[-1])
        self.finish(agent)
        self.token_ids.append(forced[-1])
        return torch.stack(logits)

    def finish(self, agent):
        pass

    def length(self, key):
        return len(self.caches[key]) if key in self.caches else 0


class NonShared(Reference):
    def owner(self, agent):
        return agent

    def read(self, agent):
        owner = self.owner(agent)
        start = self.length(("k", 0, owner))

        def cache(layer, k, v0, x):
            v = v0
            if agent and (layer, "v_proj") in self.model.lora[agent]:
                v = v0 + self.model.value_term(agent, layer, x @ self.model.value_a(agent, layer).T)
            return grow(self.caches, ("k", layer, owner), k), grow(self.caches, ("v", layer, owner), v)

        return self.model.forward(agent, self.token_ids[start:], start, cache)


class FullShared(NonShared):
    def owner(self, agent):
        return "shared"


class PreLRShared(Reference):
    def read(self, agent):
        return self.shared(agent, len(self.token_ids))

    def shared(self, path, end):
        """`path` over the unread tokens up to `end`, writing K, V0 and every agent's LR."""
        start = self.length(("k", 0))

        def cache(layer, k, v0, x):
            keys, values = grow(self.caches, ("k", layer), k), grow(self.caches, ("v", layer), v0)
            for agent in self.agents:
                if (layer, "v_proj") in self.model.lora[agent]:
                    grow(self.caches, ("lr", layer, agent), x @ self.model.value_a(agent, layer).T)
            return keys, self.with_lr(path, layer, values)

        return self.model.forward(path, self.token_ids[start:end], start, cache)

    def with_lr(self, path, layer, values):
        if path and ("lr", layer, path) in self.caches:
            values = values + self.model.value_term(path, layer, self.caches["lr", layer, path])
        return values


class ReBaseShared(PreLRShared):
    def __init__(self, model, agents, preamble=()):
        super().__init__(model, agents, preamble)
        self.private = {}

    def read(self, agent):
        if self.length(("k", 0)) < self.preamble:
            self.shared("", self.preamble)
        base = self.length(("k", 0))
        done = base + (len(self.private["k", 0]) if self.private else 0)

        def cache(layer, k, v0, x):
            keys = torch.cat([self.caches["k", layer][:base], grow(self.private, ("k", layer), k)])
            values = torch.cat([self.caches["v", layer][:base], grow(self.private, ("v", layer), v0)])
            if agent and (layer, "v_proj") in self.model.lora[agent]:
                grow(self.caches, ("lr", layer, agent), x @ self.model.value_a(agent, layer).T)
            return keys, self.with_lr(agent, layer, values)

        if not base:
            empty = torch.zeros(
                0, self.model.model.config.num_key_value_heads, self.model.stack.layers[0].self_attn.head_dim
            )
            for layer in range(self.model.num_layers):
                self.caches["k", layer], self.caches["v", layer] = empty, empty
        return self.model.forward(agent, self.token_ids[done:], done, cache)

    def finish(self, agent):
        """The neutral pass over all tokens fed this turn: reads neutral K/V0 only, writes K, V0 and others' LR."""
        start = self.length(("k", 0))

        def cache(layer, k, v0, x):
            for other in self.agents:
                if other != agent and (layer, "v_proj") in self.model.lora[other]:
                    grow(self.caches, ("lr", layer, other), x @ self.model.value_a(other, layer).T)
            return grow(self.caches, ("k", layer), k), grow(self.caches, ("v", layer), v0)

        self.model.forward("", self.token_ids[start:], start, cache)
        self.private = {}


REFERENCES = {
    "non_shared": NonShared,
    "full_shared": FullShared,
    "pre_lr_shared": PreLRShared,
    "rebase_shared": ReBaseShared,
}
