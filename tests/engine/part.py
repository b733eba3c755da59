"""A session beside its dense definition, and what both say of it at a turn boundary."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from agentrt.engine import Engine, Session
from agentrt.engine.turn import TurnResult
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme
from agentrt.step import Pass
from tests.engine.cast import Cast
from tests.reference.full import Reference

PASSING = ("keys:", "private", "stale")
"""Tapes that are there for a turn, or while it is owed; their names begin so."""


def slots_of(runs):
    return [slot for run in runs for slot in range(run.slot, run.slot + run.size)]


class Told(NamedTuple):
    """One turn: the definition's logits [new, vocab], what the engine gave, and where the turn's own reading began."""

    agent: str
    start: int
    logits: object
    result: TurnResult


@dataclass(eq=False)
class Part:
    """`paths`: which path has processed each token, of those that were processed; `reach`: how far each agent has
    itself; `twins`: by branch of a fork, the positions of each tape of which both hold the same slots."""

    engine: Engine
    session: Session
    cast: Cast
    definition: Reference
    preamble: tuple[int, ...]
    paths: list[str] = field(default_factory=list)
    reach: dict[str, int] = field(default_factory=dict)
    twins: dict["Part", dict[str, tuple[int, int]]] = field(default_factory=dict)

    @cached_property
    def scheme(self) -> Scheme:
        return make_scheme(self.cast.scheme)

    @property
    def sharing(self):
        return self.session._work.sharing

    @property
    def fixed(self) -> str | None:
        """The path that reads a preamble (DESIGN.md, 4.6): None is the first speaker's."""
        name, options = self.scheme.name, self.scheme.options()
        if name == "rebase_shared":
            return "" if options["pivot"] == "neutral" else str(options["pivot"])
        neutral = name in ("alora", "ridge") or (name == "neutral_prefix" and options["boundary"] != "native")
        return "" if neutral else None

    @property
    def tail(self) -> int | None:
        """How many tokens of its context an adapter reads itself; None: all."""
        options = self.scheme.options()
        if options.get("boundary") == "full":
            return 1
        return None if options.get("adapted_tail", "all") == "all" else int(options["adapted_tail"])

    def turned(self, agent, context, result) -> Told:
        """Let the definition take the turn that the engine has taken, with its tokens."""
        ids, start = self.definition.token_ids, len(self.paths)
        if start == len(ids) and not context:  # a turn with nothing to feed steps back one token
            last, start = ids[-1], start - 1
            self.cropped(start)
            ids.append(last)
        read = len(ids) + len(context)
        if not start:  # the speaker reads at least one token itself
            self.definition.preamble = min(self.definition.preamble, read - 1)
        logits = self.definition.turn(agent, list(context), list(result.token_ids))
        end = len(ids) - 1
        paths = [agent] * (end - start)
        if self.fixed is not None and agent != self.fixed:
            head = max(self.definition.preamble, 0 if self.tail is None else read - self.tail)
            if self.cast.invocations:  # which `context` begins with
                head = max(head, read - len(context))
            paths[: max(0, head - start)] = [self.fixed] * max(0, head - start)
        self.paths += paths
        self.reach[agent] = end
        return Told(agent, start, logits, result)

    def appended(self, context):
        self.definition.token_ids += context

    def cropped(self, length):
        self.definition.crop(length)
        del self.paths[length:]
        self.reach = {agent: min(end, length) for agent, end in self.reach.items()}
        for twin, common in self.twins.items():
            left = {name: (start, min(end, length)) for name, (start, end) in common.items()}
            twin.twins[self] = self.twins[twin] = left

    def forked(self, session) -> "Part":
        twin = Part(self.engine, session, self.cast, self.definition.fork(), self.preamble)
        twin.paths, twin.reach = list(self.paths), dict(self.reach)
        tapes = [each for each in self.sharing.tapes.items() if not each[0].startswith(PASSING) and "/" not in each[0]]
        for other, common in [*self.twins.items(), (self, {name: (tape.start, tape.end) for name, tape in tapes})]:
            twin.twins[other] = other.twins[twin] = dict(common)
        return twin

    def closed(self):
        for twin in self.twins:
            del twin.twins[self]


def owed_slots(engine) -> set[tuple[str, int]]:
    """(plane, slot) of all that passes still owed are to write."""
    passes: list[Pass] = [each for work in engine._sessions for each in work.pending]
    return {(write.plane, slot) for each in passes for write in each.writes for slot in slots_of(write.runs)}


class Boundary(NamedTuple):
    """What must be the same before and after whatever leaves a session where it was."""

    token_ids: list[int]
    spans: list
    processed: list
    tapes: dict[str, tuple[int, list[int]]]
    """By name, where it has rows: where it begins, and its slots; none of keys, which only passes read."""

    @classmethod
    def of(cls, part):
        with part.engine._changed:
            trajectory, tapes = part.session.trajectory, part.sharing.tapes
            return cls(
                list(trajectory.token_ids),
                list(trajectory.spans),
                list(trajectory.processed),
                {
                    name: (tape.start, slots_of(tape.runs(tape.start, tape.capacity)))
                    for name, tape in tapes.items()
                    if tape.capacity > tape.start and not name.startswith("keys:")
                },
            )
