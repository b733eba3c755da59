"""Each scheme's definition: which rows are computed by which path, and whose keys and values each row reads.

Written from the papers' sentences (docs/schemes.md), over given tokens, for a dense forward. No turns, slots or passes:
this is what the engine's results are held against.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from agentrt.cache.layout import Layout
from agentrt.evaluate.replay.repairs import define_repair
from agentrt.evaluate.replay.trace import Span
from agentrt.model.dense import Entry, Rows
from agentrt.model.patches import Patch
from agentrt.schemes import Scheme
from agentrt.schemes.selective import Selective
from agentrt.trajectory import NEUTRAL


class Episode(NamedTuple):
    """All rows of an episode, and of each call the rows whose logits its tokens were drawn from."""

    rows: list[Rows]
    answers: list[list[int]]


class Builder:
    """Collects rows; a row is known by its number. Lists of rows are indexed by position."""

    def __init__(self, token_ids: Sequence[int], layout: Layout) -> None:
        self._ids = token_ids
        self.layout = layout
        self._count = 0
        self.rows: list[Rows] = []
        self.answers: list[list[int]] = []

    def number(self, start: int, end: int) -> list[int]:
        """Numbers of the next `end - start` rows."""
        return list(range(self._count, self._count + end - start))

    def add(
        self,
        path: str,
        start: int,
        end: int,
        sources: Sequence[int],
        low_rank: Sequence[int] | None,
        *,
        mapped: Sequence[int] = (),
        patches: Sequence[Patch] = (),
        enters: Entry | None = None,
    ) -> None:
        """Rows of `path` for positions `[start, end)`, numbered as `number` said."""
        reads = None if low_rank is None else tuple(low_rank)
        ids = tuple(self._ids[start:end])
        self.rows.append(Rows(path, start, ids, tuple(sources), reads, tuple(mapped), tuple(patches), enters))
        self._count += end - start

    def answer(self, span: Span, own: Sequence[int]) -> None:
        """`own` are the speaker's rows, up to the end of its call: the last context token and all generated ones."""
        self.answers.append(list(own[-(span.end - span.read) - 1 :]))


def define(scheme: Scheme, spans: Sequence[Span], token_ids: Sequence[int], layout: Layout) -> Episode | None:
    """The episode `spans` over `token_ids` under `scheme`; None for a scheme that is not defined here."""
    definition = _DEFINITIONS.get(scheme.name)
    if definition is None:
        return None
    builder = Builder(token_ids, layout)
    definition(builder, scheme, spans)
    return Episode(builder.rows, builder.answers)


def _non_shared(build: Builder, scheme: Scheme, spans: Sequence[Span]) -> None:
    """Each agent reads everything up to its last call itself."""
    ends = {span.agent: span.end for span in spans}
    own = {}
    for agent, end in ends.items():
        own[agent] = build.number(0, end)
        build.add(agent, 0, end, own[agent], own[agent])
    for span in spans:
        build.answer(span, own[span.agent][: span.end])


def _full_shared(build: Builder, scheme: Scheme, spans: Sequence[Span]) -> None:
    """Every token is computed once, by its speaker; values keep their speaker's term."""
    shared: list[int] = []
    for span in spans:
        own = build.number(span.start, span.end)
        shared += own
        build.add(span.agent, span.start, span.end, shared, None)
        build.answer(span, own)


def _pre_lr_shared(build: Builder, scheme: Scheme, spans: Sequence[Span]) -> None:
    """Every token is computed once, by its speaker; a reader adds its own term of the speaker's states."""
    shared: list[int] = []
    for span in spans:
        own = build.number(span.start, span.end)
        shared += own
        build.add(span.agent, span.start, span.end, shared, shared)
        build.answer(span, own)


def _base_shared(build: Builder, scheme: Scheme, spans: Sequence[Span]) -> None:
    """K and V0 are the first speaker's; each agent's term comes from states it computed itself, for all tokens."""
    shared: list[int] = []
    seen: dict[str, list[int]] = {span.agent: [] for span in spans}
    for span in spans:
        start = len(seen[span.agent])
        own = build.number(start, span.end)
        shared += own[span.start - start :]
        seen[span.agent] += own
        build.add(span.agent, start, span.end, shared, seen[span.agent])
        build.answer(span, own)


def _rebase_shared(build: Builder, scheme: Scheme, spans: Sequence[Span]) -> None:
    """The base path computes every token; a speaker other than it computes its own turn (or its tail) once more."""
    options = scheme.options()
    pivot = NEUTRAL if options["pivot"] == "neutral" else str(options["pivot"])
    tail, handover = options["adapted_tail"], options["lp_at"] == "handover"
    base: list[int] = []
    columns: dict[str, list[int]] = {span.agent: [] for span in spans}
    private: list[int] = []  # with lp_at: handover, the speaker's rows of the calls it made in a row
    first, before = 0, ""
    for span in spans:
        rebuilt = build.number(span.start, span.end)
        goes_on = handover and span.agent == before
        base += rebuilt
        build.add(pivot, span.start, span.end, base, base)
        if span.agent == pivot:
            for agent in columns:
                columns[agent] += rebuilt
            build.answer(span, rebuilt)
        else:
            from_ = span.start if tail == "all" or goes_on else max(span.start, span.read - int(str(tail)))
            private, first = (private, first) if goes_on else ([], from_)
            own = build.number(from_, span.end)
            private = [*private, *own]
            for agent in columns:
                columns[agent] += rebuilt if agent != span.agent else [*rebuilt[: from_ - span.start], *own]
            build.add(span.agent, from_, span.end, [*base[:first], *private], columns[span.agent])
            build.answer(span, own)
        before = span.agent


def _selective(build: Builder, scheme: Scheme, spans: Sequence[Span]) -> None:
    """As full_shared; but first a speaker computes some of what it has not read again, and reads that instead."""
    assert isinstance(scheme, Selective)
    shared: list[int] = []
    read: dict[str, int] = {}
    patches: dict[str, list[Patch]] = {span.agent: [] for span in spans}
    for span in spans:
        agent, start = span.agent, read.get(span.agent, 0)
        if start < span.start:
            repair = define_repair(scheme, build.layout, start, build.number(start, span.start))
            patches[agent] += repair.patches
            enters = None if repair.enters_at is None else Entry(repair.enters_at, tuple(shared[start : span.start]))
            build.add(agent, start, span.start, shared, None, patches=patches[agent], enters=enters)
        own = build.number(span.start, span.end)
        shared += own
        build.add(agent, span.start, span.end, shared, None, patches=patches[agent])
        build.answer(span, own)
        read[agent] = span.end


def _neutral_prefix(build: Builder, scheme: Scheme, spans: Sequence[Span]) -> None:
    """The neutral path computes every token; a speaker reads that up to its call's start, or to the last token of its
    context, and its own rows, with its own term, from there. Without a preamble early is native."""
    boundary = scheme.options()["boundary"]
    if boundary in ("native", "early"):
        _non_shared(build, scheme, spans)
        return
    base: list[int] = []
    for span in spans:
        rebuilt = build.number(span.start, span.end)
        base += rebuilt
        build.add(NEUTRAL, span.start, span.end, base, None)
        if span.agent == NEUTRAL:
            build.answer(span, rebuilt)
            continue
        from_ = span.read - 1 if boundary == "full" else span.start
        own = build.number(from_, span.end)
        build.add(span.agent, from_, span.end, [*base[:from_], *own], None)
        build.answer(span, own)


def _ridge(build: Builder, scheme: Scheme, spans: Sequence[Span]) -> None:
    """The neutral path computes every token; a speaker reads its own rows, and what others spoke through its maps."""
    base: list[int] = []
    spoken: dict[str, dict[int, int]] = {span.agent: {} for span in spans}
    for span in spans:
        rebuilt = build.number(span.start, span.end)
        base += rebuilt
        build.add(NEUTRAL, span.start, span.end, base, None)
        if span.agent == NEUTRAL:
            build.answer(span, rebuilt)
            continue
        own = build.number(span.start, span.end)
        known = spoken[span.agent]
        known.update(zip(range(span.start, span.end), own, strict=True))
        sources = [known.get(at, base[at]) for at in range(span.end)]
        others = [at for at in range(span.end) if at not in known]
        build.add(span.agent, span.start, span.end, sources, None, mapped=others)
        build.answer(span, own)


_DEFINITIONS: Final[Mapping[str, Callable[[Builder, Scheme, Sequence[Span]], None]]] = {
    "non_shared": _non_shared,
    "full_shared": _full_shared,
    "base_shared": _base_shared,
    "base_lr_shared": _pre_lr_shared,  # with a shared A, which it requires, one column is every agent's
    "pre_lr_shared": _pre_lr_shared,
    "rebase_shared": _rebase_shared,
    "droidspeak": _selective,
    "droidspeak_scattered": _selective,
    "cacheblend": _selective,
    "relay_caching": _selective,
    "neutral_prefix": _neutral_prefix,
    "own_kv": _non_shared,
    "ridge": _ridge,
}
