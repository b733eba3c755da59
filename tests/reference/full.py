"""What every definition has, and the two schemes that keep values in full: each agent its own cache, or one for all."""

import copy

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

    def settle(self):
        pass

    def length(self, key):
        return len(self.caches[key]) if key in self.caches else 0

    def crop(self, length):
        """Cut every cache back to `length` (SCHEMES.md, held tokens)."""
        del self.token_ids[length:]
        self.preamble = min(self.preamble, length)
        self.caches = {key: rows[:length] for key, rows in self.caches.items()}

    def fork(self):
        """A second one with the same past."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict):
                setattr(twin, name, copy.deepcopy(value))
        return twin


class NonShared(Reference):
    def owner(self, agent):
        return agent

    def read(self, agent):
        owner = self.owner(agent)
        start = self.length(("k", 0, owner))

        def cache(layer, k, v0, x):
            self.store(agent, layer, k, v0, x)
            return self.merged(agent, layer)

        return self.model.forward(agent, self.token_ids[start:], start, cache)

    def store(self, agent, layer, k, v0, x):
        """Keep new rows, with the adapter's term in the values."""
        grow(self.caches, ("k", layer, self.owner(agent)), k)
        grow(self.caches, ("v", layer, self.owner(agent)), self.full_values(agent, layer, v0, x))

    def full_values(self, agent, layer, v0, x):
        if not self.model.has_value_term(agent, layer):
            return v0
        return v0 + self.model.value_term(agent, layer, x @ self.model.value_a(agent, layer).T)

    def merged(self, agent, layer):
        """K and V of all tokens as `agent` reads them."""
        return self.caches["k", layer, self.owner(agent)], self.caches["v", layer, self.owner(agent)]


class FullShared(NonShared):
    def owner(self, agent):
        return "shared"
