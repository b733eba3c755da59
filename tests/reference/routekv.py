"""The definitions of the schemes that share an adapter-free prefix (SCHEMES.md, section 3), dense."""

import torch

from tests.reference.schemes import NonShared, Reference, grow


class NeutralPrefix(Reference):
    """boundary question or full: the neutral cache is complete between turns; `tail` = how many of the new context's
    tokens the adapter reads (None = all). Nothing of the adapter is added to what the neutral path computed."""

    def __init__(self, model, agents, preamble=(), *, tail=None):
        super().__init__(model, agents, preamble)
        self.tail, self.own = tail, {}
        shape = (0, model.model.config.num_key_value_heads, model.stack.layers[0].self_attn.head_dim)
        for layer in range(model.num_layers):
            self.caches["k", layer] = self.caches["v", layer] = torch.zeros(shape)

    def turn(self, agent, context, forced):
        if self.length(("k", 0)) < self.preamble:
            self.neutral(self.preamble)
        self.token_ids += context
        if self.tail is not None:
            self.neutral(len(self.token_ids) - self.tail)
        return super().turn(agent, [], forced)

    def neutral(self, end):
        start = self.length(("k", 0))

        def cache(layer, k, v0, x):
            return grow(self.caches, ("k", layer), k), grow(self.caches, ("v", layer), v0)

        if start < end:
            self.model.forward("", self.token_ids[start:end], start, cache)

    def read(self, agent):
        shared = self.length(("k", 0))
        done = shared + (len(self.own["k", 0]) if self.own else 0)

        def cache(layer, k, v0, x):
            v = v0
            if self.model.has_value_term(agent, layer):
                v = v0 + self.model.value_term(agent, layer, x @ self.model.value_a(agent, layer).T)
            keys, values = grow(self.own, ("k", layer), k), grow(self.own, ("v", layer), v)
            return torch.cat([self.caches["k", layer], keys]), torch.cat([self.caches["v", layer], values])

        return self.model.forward(agent, self.token_ids[done:], done, cache)

    def finish(self, agent):
        end = self.length(("k", 0)) + len(self.own["k", 0])
        self.own = {}
        self.neutral(end)


class Alora(NeutralPrefix):
    """Nothing is kept between turns: the neutral path reads up to the invocation, the adapter from there on."""

    def __init__(self, model, agents, preamble=(), *, invocations):
        super().__init__(model, agents, preamble)
        self.invocations, self.empty = invocations, dict(self.caches)

    def turn(self, agent, context, forced):
        self.token_ids += context
        ids, wanted = self.token_ids, self.invocations.get(agent, [])
        starts = [at for at in range(len(ids)) if ids[at : at + len(wanted)] == list(wanted)]
        self.caches, self.own = dict(self.empty), {}
        self.neutral(starts[-1] if agent else len(ids) - 1)
        return Reference.turn(self, agent, [], forced)

    def finish(self, agent):
        self.caches, self.own = dict(self.empty), {}
        self.neutral(len(self.token_ids))


class EarlyPrefix(NonShared):
    """boundary early: the neutral preamble in front of every agent's own cache."""

    def read(self, agent):
        for layer in range(self.model.num_layers):
            if self.preamble and ("k", layer, agent) not in self.caches:
                for part in ("k", "v"):
                    self.caches[part, layer, agent] = self.neutral()[part, layer]
        return super().read(agent)

    def neutral(self):
        rows = {}

        def cache(layer, k, v0, x):
            rows["k", layer], rows["v", layer] = k, v0
            return k, v0

        self.model.forward("", self.token_ids[: self.preamble], 0, cache)
        return rows


class Ridge(NeutralPrefix, NonShared):
    """Each agent's own cache: its own rows, and translated neutral ones where others wrote. A role without an adapter
    reads and writes the neutral cache.

    `translate(agent, layer, k, v, start)` gives the rows for positions from `start` on.
    """

    def __init__(self, model, agents, preamble=(), *, translate):
        super().__init__(model, agents, preamble)
        self.translate = translate

    def turn(self, agent, context, forced):
        if self.length(("k", 0)) < self.preamble:
            self.neutral(self.preamble)
        shared = self.length(("k", 0))
        for layer in range(self.model.num_layers if agent else 0):
            start = self.length(("k", layer, agent))
            neutral = (self.caches[part, layer][start:shared] for part in ("k", "v"))
            for part, rows in zip(("k", "v"), self.translate(agent, layer, *neutral, start), strict=True):
                grow(self.caches, (part, layer, agent), rows)
        self.token_ids += context
        return Reference.turn(self, agent, [], forced)

    def read(self, agent):
        return (NonShared if agent else NeutralPrefix).read(self, agent)

    def finish(self, agent):
        if agent:
            self.neutral(self.length(("k", 0, agent)))
        else:
            super().finish(agent)
