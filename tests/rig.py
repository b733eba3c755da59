"""Drives a scheme's passes straight through a backbone, with forced tokens, and reads its caches back densely."""

import copy

import torch

from agentrt.cache.store import CacheStore
from agentrt.model.backbone import Backbone
from agentrt.schemes.make import make_scheme
from agentrt.step import Step
from agentrt.trajectory import Trajectory


class Rig:
    """One session of `scheme` over a copy of a stock model; `chunk` cuts every pass into steps of so many rows."""

    def __init__(self, model, folders, scheme, *, preamble=(), chunk=None, ride=3, segment_slots=32, budget_bytes=None):
        self.backbone = Backbone(copy.deepcopy(model))
        self.adapters = self.backbone.load_adapters(folders)
        layout = self.backbone.layout(self.adapters)
        self.scheme = make_scheme(scheme)
        self.scheme.allow(layout)
        if self.scheme.maps_file is not None:
            self.adapters = self.backbone.load_maps(self.scheme.maps_file, self.adapters, self.scheme.maps_top)
        self.store = CacheStore(
            self.scheme.planes(layout), segment_slots=segment_slots, poison=True, budget_bytes=budget_bytes
        )
        self.trajectory = Trajectory()
        self.trajectory.append(preamble, "system", "preamble")
        self.trajectory.preamble = len(preamble)
        self.sharing = self.scheme.open(layout, self.store, self.trajectory)
        self.chunk, self.ride = chunk, ride
        self.rows = {}

    def turn(self, agent, context, forced, *, finish=True):
        """Logits after the context and after each forced token but the last, which stays unread."""
        self.trajectory.append(context, "user", "context")
        logits = [self.run(self.sharing.begin(agent, len(forced)))]
        for token_id in forced[:-1]:
            self.trajectory.append([token_id], agent, "generated")
            passes = self.sharing.feed()
            logits.append(self.run([*passes, *self.sharing.ride(self.ride)]))
        if finish:
            self.run(self.sharing.end())
            self.sharing.quiet()
            self.trajectory.append(forced[-1:], agent, "generated")
        self.store.check_integrity()
        return torch.cat(logits)

    def settle(self):
        """Run what the scheme still owes."""
        self.run(self.sharing.catch_up())
        self.sharing.quiet()

    def run(self, passes):
        """All passes in order, in one step or chunk by chunk; the last logits."""
        queue, logits = list(passes), None
        if self.chunk:
            queue = [piece for each in queue for piece in self.pieces(each)]
        for step in [queue] if not self.chunk else [[each] for each in queue]:
            if step:
                for each in step:
                    self.rows[each.path] = self.rows.get(each.path, 0) + len(each)
                rows = self.backbone.run(Step(tuple(step)), self.store.planes, self.adapters)
                logits = next((each for each in reversed(rows) if each is not None), logits)
        return logits

    def pieces(self, each):
        while len(each) > self.chunk and each.splits:
            head, each = each.split(self.chunk)
            yield head
        yield each

    def dense(self, tape, part, layer):
        """The rows of a tape's written positions, [end - start, *shape]."""
        tape = self.sharing.tapes[tape]
        plane = self.store.planes[tape.plane]
        rows = [plane.locate(run).read(part, layer) for run in tape.runs(tape.start, tape.end)]
        return torch.cat(rows) if rows else None
