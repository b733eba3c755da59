"""Plays a schedule of operations on sessions of one engine, and holds all of them to the invariants after each."""

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from agentrt.engine.turn import Turn
from agentrt.errors import CacheFullError, EngineError, TurnCancelledError
from agentrt.model.sampling import Sampling
from tests.engine import invariants
from tests.engine.cast import ZERO, cast
from tests.engine.part import Boundary, Part
from tests.engine.stepped import SteppedBackbone

PREAMBLES = ((7, 7, 7), (7, 7, 7, 8), (9,), ())
MOST_SESSIONS = 4


class Ask(NamedTuple):
    """A turn: how many random tokens it brings and how many it generates, and whether they are given or greedy."""

    agent: str
    context: int
    new: int
    forced: bool
    seed: int


class Ends(NamedTuple):
    """How the turn of a session does not come to its end: at its `at`th step it is cancelled, or the step fails; or
    there is no room for it at all."""

    how: str
    ask: Ask
    at: int


class Together(NamedTuple):
    """Turns of as many sessions at once."""

    asks: tuple[Ask, ...]


class Does(NamedTuple):
    """`what`: open, append, crop, fork, wait, settle or close; `number` says which preamble, how much, or where."""

    what: str
    number: int


class Stage:
    """`margin`: what the schedule's definitions say of how clear their choices of tokens were."""

    def __init__(self, open_engine, variant, **limits):
        self.cast, self.zero_b = cast(variant), variant.endswith(ZERO)
        self.engine = open_engine(variant, kind=SteppedBackbone, max_context=400, **limits)
        self.engine.backbone.before = lambda step, planes: invariants.touches_only_what_is_its_own(step, self.engine)
        self.parts: list[Part] = []
        self.do(0, Does("open", 0))

    @property
    def margin(self):
        return min((getattr(part.definition, "margin", 1.0) for part in self.parts), default=1.0)

    def do(self, which, operation):
        """An operation on session number `which`, of those there are."""
        first = which % len(self.parts) if self.parts else 0
        others = {part: Boundary.of(part) for part in self.parts}
        match operation:
            case Together(asks):
                chosen = [self.parts[(first + index) % len(self.parts)] for index in range(len(asks))]
                touched = list(dict.fromkeys(chosen))
                self.turn(dict(zip(touched, asks, strict=False)))
            case Ends(how, ask, at):
                touched = [self.parts[first]]
                self.undone(touched[0], how, ask, at)
            case Does("open", number):
                touched = self.open(PREAMBLES[number % len(PREAMBLES)])
            case Does(what, number):
                touched = [self.parts[first]]
                getattr(self, what)(touched[0], number)
        self.check()
        for part in self.parts:
            if part in others and part not in touched:
                invariants.is_as_it_was(part, others[part])

    def check(self):
        for fault in self.engine.backbone.faults:
            raise fault
        invariants.has_books_that_add_up(self.engine)
        invariants.share_one_copy_of_a_preamble(self.parts)
        for part in self.parts:
            invariants.is_at_its_boundary(part)
            invariants.holds_the_bytes_of_the_formula(part)
            invariants.shares_its_slots_with_its_branches(part)
            invariants.holds_what_its_definition_holds(part)

    def tokens(self, ask, part=None):
        """The context of a turn: random, since of equal tokens a scheme could choose any."""
        rng = random.Random(ask.seed)
        invocation = self.cast.invocations.get(ask.agent, ())
        least = 0 if part is not None and (part.paths or part.definition.token_ids) else 1
        return [*invocation, *(rng.randrange(200) for _ in range(max(ask.context, least)))]

    def submit(self, part, ask, context) -> Turn:
        rng = random.Random(-ask.seed)
        forced = [rng.randrange(200) for _ in range(ask.new)] if ask.forced else ()
        return part.session.turn(ask.agent, context, Sampling(max_new_tokens=ask.new, forced=forced))

    def turn(self, asks: dict[Part, Ask]):
        begun = {part: Boundary.of(part) for part in asks}
        contexts = {part: self.tokens(ask, part) for part, ask in asks.items()}
        turns = {part: self.submit(part, ask, contexts[part]) for part, ask in asks.items()}
        for part, turn in turns.items():
            told = part.turned(asks[part].agent, contexts[part], turn.result)
            invariants.says_what_its_definition_says(told)
            invariants.says_what_peft_says(part, told, zero_b=self.zero_b)
            if not asks[part].forced:
                invariants.takes_the_likeliest(told)
            invariants.has_moved_nothing(part, begun[part], told.start)

    def undone(self, part, how, ask, at):
        before = Boundary.of(part)
        context = self.tokens(ask._replace(context=max(ask.context, 1)))
        ask = ask._replace(new=60, forced=False)  # so many that nothing else ends it
        backbone, turns = self.engine.backbone, []
        ways: dict[str, tuple[type[BaseException], Callable[[], object]]] = {
            "cancel": (TurnCancelledError, lambda: [turn.cancel() for turn in turns]),
            "fail": (EngineError, lambda: 1 / 0),
            "full": (CacheFullError, lambda: None),
        }
        error, then = ways[how]
        self.engine._store.budget_bytes = 0 if how == "full" else None
        backbone.disturb(at, then)
        turns.append(self.submit(part, ask, context))
        with pytest.raises(error):
            turns[0].result  # noqa: B018
        backbone.calm()
        self.engine._store.budget_bytes = None
        invariants.is_as_it_was(part, before)

    def open(self, preamble):
        if len(self.parts) < MOST_SESSIONS:
            session, definition = self.engine.session(preamble), self.cast.definition(preamble)
            self.parts.append(Part(self.engine, session, self.cast, definition, preamble))
        return ()

    def append(self, part, number):
        context = self.tokens(Ask("", number % 7, 1, forced=True, seed=number))
        part.session.append(context)
        part.appended(context)

    def crop(self, part, percent):
        length = len(part.session.trajectory) * percent // 100
        part.session.crop(length)
        part.cropped(length)

    def fork(self, part, number):
        if len(self.parts) < MOST_SESSIONS:
            self.parts.append(part.forked(part.session.fork()))

    def wait(self, part, number):
        part.session.wait()

    def settle(self, part, number):
        part.session.settle()

    def close(self, part, number):
        part.session.wait()
        if len(self.parts) > 1:
            part.session.close()
            part.closed()
            self.parts.remove(part)

    def finish(self):
        """Every session still takes a turn (4.8), and closing them frees every slot but those of kept preambles."""
        for index, part in enumerate(list(self.parts)):
            self.turn({part: Ask("action", 3, 2, forced=False, seed=index)})
        self.check()
        for part in self.parts:
            part.session.wait()
            part.session.close()
        self.parts.clear()
        invariants.has_books_that_add_up(self.engine)
        self.engine.close()
        assert self.engine.stats().held_bytes == 0
