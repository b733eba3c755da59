"""What was played is run again, alone: every token must be the same, but where two were as good as equal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentrt import Runtime, Sampling
from agentrt.engine import Engine, Session
from benchmarks.soak.load import failures_in, sampled_in
from benchmarks.soak.records import Cropped, History, Played

NEAR_TIE = 1e-4
"""Between the logits of two tokens: less than what other company in a step may change in fp32."""
NEAR_TIES_SHARE = 0.01
SKIPPED_SHARE = 0.05
"""Of all replays; one of a kind is always allowed, since a short soak has few."""


@dataclass
class Comparison:
    """Counts, and `faults`: what differs, in words. A replay is that of an episode or of one turn of a session."""

    same: int = 0
    near_ties: int = 0
    """Those that differ, the first time where two tokens are as good as equal."""
    skipped: int = 0
    """Episodes replayed in vain: a tool was late in one of the two and not in the other."""
    tokens: int = 0
    """That were the same in replays that were the same as a whole."""
    faults: list[str] = field(default_factory=list)

    @property
    def replays(self) -> int:
        return self.same + self.near_ties + self.skipped + len(self.faults)

    def agree(self, num_tokens: int) -> None:
        self.same += 1
        self.tokens += num_tokens

    def differ(self, what: str, apart: float) -> None:
        """`apart`: by how much the two first tokens that differ are unequally likely."""
        if apart <= NEAR_TIE:
            self.near_ties += 1
        else:
            self.faults.append(f"{what} differs from its replay; the two tokens are {apart:.2g} apart")

    def too_many(self) -> list[str]:
        """Faults of all replays together: excuses that were used too often to believe them."""
        counted = (("near ties", self.near_ties, NEAR_TIES_SHARE), ("skipped", self.skipped, SKIPPED_SHARE))
        return [
            f"{found} of {self.replays} replays are {kind}, more than {share:.0%}"
            for kind, found, share in counted
            if found > max(1, share * self.replays)
        ]


def replay_episode(runtime: Runtime, played: Played, comparison: Comparison) -> None:
    heard = list(runtime.stream(played.question, seed=played.seed))
    alone = sampled_in(heard)
    if failures_in(heard)[: len(played.failed)] != played.failed:  # a tool that was late for once
        comparison.skipped += 1
    elif played.sampled == (alone if played.whole else alone[: len(played.sampled)]):
        comparison.agree(len(played.sampled))
    else:
        what = f"{played.question!r} with seed {played.seed}"
        comparison.differ(what, _episode_apart(runtime, played))


def replay_session(engine: Engine, history: History, comparison: Comparison) -> None:
    with engine.session() as session:
        for done in history:
            if isinstance(done, Cropped):
                session.crop(done.length)
                continue
            adapter, context, sampled = done
            with session.fork() as boundary:
                alone = session.turn(adapter, context, Sampling(max_new_tokens=len(sampled))).result.token_ids
                if alone != sampled:
                    comparison.differ(f"a turn of {adapter}", _apart(boundary, adapter, context, sampled, alone))
                    return  # what follows was said after other words
            comparison.agree(len(sampled))


def _episode_apart(runtime: Runtime, played: Played) -> float:
    """Runs the episode once more, alone, for its spans, and goes along them to where `played` said something else."""
    left = played.sampled
    spans = runtime.run(played.question, seed=played.seed).spans
    preamble = [span.token_ids for span in spans if span.kind == "preamble"]
    with runtime.engine.session(preamble[0] if preamble else None) as session:
        for span in spans[len(preamble) :]:
            if span.path is None:
                session.append(span.token_ids, span.author, span.kind)
                continue
            said, left = left[: len(span.token_ids)], left[len(span.token_ids) :]
            if said != span.token_ids:
                return _apart(session, span.path, (), said, span.token_ids)
            forced = Sampling(max_new_tokens=len(said), forced=said)
            session.turn(span.path, (), forced, kind=span.kind).result  # noqa: B018 - waits
    return math.inf


def _apart(before: Session, adapter: str, context: Sequence[int], one: Sequence[int], other: Sequence[int]) -> float:
    """Between the log-probabilities of the first tokens in which two turns differ; inf where one only goes on longer.

    `before` is the session at the turn's start; it stays as it is.
    """
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if at is None:
        return math.inf
    logprobs = []
    for told in (one, other):
        with before.fork() as branch:
            forced = Sampling(max_new_tokens=at + 1, forced=told[: at + 1])
            logprobs.append(branch.turn(adapter, context, forced).result.logprobs[at])
    return abs(logprobs[0] - logprobs[1])
