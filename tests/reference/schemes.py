"""The definition of each scheme over `DenseModel`, one class a scheme: full tensors, one token span at a time."""

from functools import partial

import torch

from tests.reference.full import FullShared, NonShared, Reference, grow
from tests.reference.selective import CacheBlend, DroidSpeak, RelayCaching


class PreLRShared(Reference):
    """Keys are held as k_proj alone makes them; norm and RoPE come after the reader's own term."""

    def read(self, agent):
        return self.shared(agent, len(self.token_ids))

    def shared(self, path, end):
        """`path` over the unread tokens up to `end`, writing K0, V0 and every agent's LR."""
        start = self.length(("k0", 0))

        def cache(layer, k, v0, x):
            base = self.grow_base(layer, self.model.base_keys(layer, x), v0)
            for agent in self.agents:
                self.grow_columns(agent, layer, x)
            return self.with_terms(path, layer, *base)

        return self.model.forward(path, self.token_ids[start:end], start, cache)

    def grow_base(self, layer, k0, v0):
        return grow(self.caches, ("k0", layer), k0), grow(self.caches, ("v", layer), v0)

    def grow_columns(self, agent, layer, x):
        if self.model.has_value_term(agent, layer):
            grow(self.caches, ("lr", layer, agent), x @ self.model.value_a(agent, layer).T)
        if self.model.has_key_term(agent, layer):
            grow(self.caches, ("lrk", layer, agent), x @ self.model.key_a(agent, layer).T)

    def with_terms(self, path, layer, k0, values):
        """K and V as `path` reads them."""
        if self.model.has_value_term(path, layer):
            values = values + self.model.value_term(path, layer, self.column("lr", layer, path))
        low = self.column("lrk", layer, path) if self.model.has_key_term(path, layer) else None
        return self.model.keys(path, layer, k0, low), values

    def column(self, part, layer, path):
        return self.caches[part, layer, path]


class BaseShared(PreLRShared):
    def read(self, agent):
        """LR of everything the agent has not seen; K0 and V0 only of what nobody has processed."""
        shared = self.length(("k0", 0))
        layers = range(self.model.num_layers)
        columns = [(part, layer, agent) for part in ("lr", "lrk") for layer in layers]
        terms = any(
            self.model.has_value_term(agent, layer) or self.model.has_key_term(agent, layer) for layer in layers
        )
        start = max(map(self.length, columns)) if terms else shared

        def cache(layer, k, v0, x):
            base = self.grow_base(layer, self.model.base_keys(layer, x)[shared - start :], v0[shared - start :])
            self.grow_columns(agent, layer, x)
            return self.with_terms(agent, layer, *base)

        return self.model.forward(agent, self.token_ids[start:], start, cache)


class BaseLRShared(PreLRShared):
    """One LR for all: A is the same, B is the reader's."""

    def grow_columns(self, agent, layer, x):
        if agent == self.agents[0]:
            super().grow_columns(agent, layer, x)

    def column(self, part, layer, path):
        return self.caches[part, layer, self.agents[0]]


class ReBaseShared(PreLRShared):
    """`tail`: context tokens the adapter reads itself (None = all); `pivot`: the path of the base ("" = neutral);
    `handover`: the base pass waits until another agent speaks."""

    def __init__(self, model, agents, preamble=(), *, tail=None, pivot="", handover=False):
        super().__init__(model, agents, preamble)
        self.tail, self.pivot, self.handover = tail, pivot, handover
        self.private, self.speaker = {}, None
        shape = (0, model.model.config.num_key_value_heads, model.stack.layers[0].self_attn.head_dim)
        for layer in range(model.num_layers):
            self.caches["k0", layer] = self.caches["v", layer] = torch.zeros(shape)

    def turn(self, agent, context, forced):
        if self.private and self.speaker != agent:
            self.rebase()
        self.speaker = agent
        if self.length(("k0", 0)) < self.preamble:
            self.base(self.preamble)
        if self.tail is not None and agent != self.pivot:
            head = len(self.token_ids) + len(context) - self.tail
            if head > self.length(("k0", 0)):
                self.token_ids += context
                self.base(head)
                context = []
        return super().turn(agent, context, forced)

    def read(self, agent):
        if agent == self.pivot:
            return self.base(len(self.token_ids))
        base = self.length(("k0", 0))
        done = base + (len(self.private["k0", 0]) if self.private else 0)

        def cache(layer, k, v0, x):
            own = grow(self.private, ("k0", layer), self.model.base_keys(layer, x))
            k0 = torch.cat([self.caches["k0", layer][:base], own])
            values = torch.cat([self.caches["v", layer][:base], grow(self.private, ("v", layer), v0)])
            self.grow_columns(agent, layer, x)
            return self.with_terms(agent, layer, k0, values)

        return self.model.forward(agent, self.token_ids[done:], done, cache)

    def finish(self, agent):
        if self.private and not self.handover:
            self.rebase()

    def settle(self):
        if self.private:
            self.rebase()

    def crop(self, length):
        base = self.length(("k0", 0))
        super().crop(length)
        self.private = {key: rows[: length - base] for key, rows in self.private.items() if length > base}

    def rebase(self):
        end = self.length(("k0", 0)) + len(self.private["k0", 0])
        self.private = {}
        self.base(end)

    def base(self, end):
        """The base path up to `end`: K, V0, and every LR that does not reach that far."""
        start = self.length(("k0", 0))

        def cache(layer, k, v0, x):
            for agent in self.agents:
                have = max(self.length((part, layer, agent)) for part in ("lr", "lrk"))
                if have < end:
                    self.grow_columns(agent, layer, x[have - start :])
            return self.with_terms(self.pivot, layer, *self.grow_base(layer, self.model.base_keys(layer, x), v0))

        return self.model.forward(self.pivot, self.token_ids[start:end], start, cache)


REFERENCES = {
    "non_shared": NonShared,
    "full_shared": FullShared,
    "base_shared": BaseShared,
    "base_lr_shared": BaseLRShared,
    "pre_lr_shared": PreLRShared,
    "rebase_shared:lp": ReBaseShared,
    "rebase_shared:db": ReBaseShared,
    "rebase_shared:fused": ReBaseShared,
    "rebase_shared:auto,fuse_rows=4": ReBaseShared,
    "rebase_shared:lp,lp_at=handover": partial(ReBaseShared, handover=True),
    "rebase_shared:lp,adapted_tail=5": partial(ReBaseShared, tail=5),
    "rebase_shared:db,adapted_tail=2": partial(ReBaseShared, tail=2),
    "rebase_shared:fused,adapted_tail=1": partial(ReBaseShared, tail=1),
    "rebase_shared:auto,adapted_tail=4": partial(ReBaseShared, tail=4),
    "rebase_shared:lp,pivot=plan": partial(ReBaseShared, pivot="plan"),
    "rebase_shared:db,pivot=action": partial(ReBaseShared, pivot="action"),
    "rebase_shared:auto,pivot=plan": partial(ReBaseShared, pivot="plan"),
    "rebase_shared:fused,pivot=reflect,adapted_tail=3": partial(ReBaseShared, pivot="reflect", tail=3),
    "droidspeak": partial(DroidSpeak, layers=(1,)),
    "droidspeak:layers=0-1": partial(DroidSpeak, layers=(0, 1)),
    "droidspeak_scattered": partial(DroidSpeak, layers=(1,)),
    "droidspeak_scattered:layers=0+2": partial(DroidSpeak, layers=(0, 2)),
    "cacheblend": CacheBlend,
    "cacheblend:ratio=0.7": partial(CacheBlend, ratio=0.7),
    "relay_caching": partial(RelayCaching, first=1, last=1, detect=1),
    "relay_caching:layers=0-2,ratio=0.8": partial(RelayCaching, first=0, last=2, detect=1, ratio=0.8),
    "relay_caching:layers=1-2,detect=2": partial(RelayCaching, first=1, last=2, detect=2),
}
"""By the name a user would give the scheme."""
