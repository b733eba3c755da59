"""What a scheme must run and hold on a trace, exactly: closed formulas, no engine (the schemes' definitions)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from agentrt.cache.layout import KEYS, KV, Layout
from agentrt.evaluate.replay.repairs import repairs
from agentrt.evaluate.replay.trace import Span, Trace
from agentrt.schemes import Scheme
from agentrt.schemes.selective import Selective


class Expected(NamedTuple):
    """Rows run through the layers, and the most bytes held at any time."""

    prefill_rows: int
    neutral_rows: int
    decode_rows: int
    kv_bytes_peak: int
    repaired_layer_rows: int = 0


class Sizes(NamedTuple):
    """Bytes of one token: K and V (or K0 and V0) of all layers, the low-rank column of each agent that has one, and,
    where keys are made for a reader, its keys."""

    kv: int
    keys: int
    columns: Mapping[str, int]
    riding: bool
    """The base path works beside the speaker, so that both have rows of their own."""

    @property
    def all_columns(self) -> int:
        return sum(self.columns.values())


def expected(scheme: Scheme, trace: Trace, layout: Layout, *, riding: bool = False) -> Expected | None:
    """The books of one replay without a preamble; None for a scheme that has no formula here.

    `riding`: the engine leaves room in decode steps (`ride_rows`).
    """
    decode = sum(call.decode for call in trace.calls)
    if isinstance(scheme, Selective):
        repaired, peak = repairs(scheme, trace.spans, layout)
        return Expected(_new_tokens(trace.spans), 0, decode, peak, repaired)
    formula = _FORMULAS.get(scheme.name)
    if formula is None:
        return None
    columns = {name: layout.column_spec(name).row_bytes for name in layout.column_adapters}
    planes = bytes_per_token(scheme, layout)
    sizes = Sizes(planes[KV], planes.get(KEYS, 0), columns, riding and scheme.rides)
    prefill, neutral, peak = formula(scheme, trace.spans, sizes)
    return Expected(prefill, neutral, decode, peak)


def bytes_per_token(scheme: Scheme, layout: Layout) -> dict[str, int]:
    """Row bytes of every plane of a scheme."""
    return {spec.name: spec.row_bytes for spec in scheme.planes(layout)}


def read_again(spans: Sequence[Span]) -> tuple[int, dict[str, int]]:
    """Rows where every agent reads all that it has not processed, and how far each has read in the end."""
    rows, seen = 0, dict.fromkeys((span.agent for span in spans), 0)
    for span in spans:
        rows += span.read - seen[span.agent]
        seen[span.agent] = span.end
    return rows, seen


Books = tuple[int, int, int]
"""Prefill rows, neutral rows, peak bytes."""


def _non_shared(scheme: Scheme, spans: Sequence[Span], sizes: Sizes) -> Books:
    rows, seen = read_again(spans)
    return rows, 0, sum(seen.values()) * sizes.kv


def _full_shared(scheme: Scheme, spans: Sequence[Span], sizes: Sizes) -> Books:
    return _new_tokens(spans), 0, spans[-1].end * sizes.kv


def _base_shared(scheme: Scheme, spans: Sequence[Span], sizes: Sizes) -> Books:
    rows, seen = read_again(spans)
    columns = sum(end * sizes.columns.get(agent, 0) for agent, end in seen.items())
    return rows, 0, spans[-1].end * (sizes.kv + sizes.keys) + columns


def _base_lr_shared(scheme: Scheme, spans: Sequence[Span], sizes: Sizes) -> Books:
    one = next(iter(sizes.columns.values()), 0)
    return _new_tokens(spans), 0, spans[-1].end * (sizes.kv + sizes.keys + one)


def _pre_lr_shared(scheme: Scheme, spans: Sequence[Span], sizes: Sizes) -> Books:
    return _new_tokens(spans), 0, spans[-1].end * (sizes.kv + sizes.keys + sizes.all_columns)


class Rebased(NamedTuple):
    """How a base path follows the speakers."""

    pivot: object
    tail: object
    handover: bool
    beside: bool
    """It works beside the speaker."""
    fuse_rows: float
    """At most so many rows are left to the next turn."""


def _rebase_shared(scheme: Scheme, spans: Sequence[Span], sizes: Sizes) -> Books:
    options = scheme.options()
    schedule, handover = str(options["schedule"]), options["lp_at"] == "handover"
    beside = sizes.riding or schedule == "db"
    short = float(str(options["fuse_rows"])) if sizes.riding else 0
    fuse = {"fused": math.inf, "auto": short}.get(schedule, math.inf if handover else 0)
    return _rebased(spans, sizes, Rebased(options["pivot"], options["adapted_tail"], handover, beside, fuse))


def _neutral_prefix(scheme: Scheme, spans: Sequence[Span], sizes: Sizes) -> Books:
    """Boundary full reads one token, question all; without a preamble early is native, which is non_shared."""
    options = scheme.options()
    if options["boundary"] in ("native", "early"):
        return _non_shared(scheme, spans, sizes)
    tail, beside = 1 if options["boundary"] == "full" else "all", sizes.riding or options["schedule"] == "db"
    return _rebased(spans, sizes._replace(columns={}), Rebased(None, tail, False, beside, 0))


def _rebased(spans: Sequence[Span], sizes: Sizes, how: Rebased) -> Books:
    """A turn of the pivot writes the base itself; any other has adapted rows while it lasts: in the base's own slots
    where the base path comes after the turn, else in slots of their own.

    Where keys are made, the speaker has its own while its turn lasts, and so has the base path: as far as the speaker
    where it works beside it, else up to the speaker's rows, if it has something to read there.
    """
    prefill = neutral = peak = private = owed = 0
    before = ""
    for span in spans:
        direct = span.agent == how.pivot
        goes_on = how.handover and span.agent == before and not direct
        stale = private if how.handover and not goes_on else 0
        if not goes_on:
            private = 0
        read = span.read - span.start
        adapted = read if direct or goes_on or how.tail == "all" else min(read, int(str(how.tail)))
        prefill += adapted
        base_keys = 0
        if direct:
            owed = 0
        else:
            own = adapted + span.end - span.read
            private += own
            neutral += span.end - span.start
            behind = adapted < read or (owed and not goes_on)
            base_keys = span.end if how.beside else span.read - adapted if behind else 0
            owed = own if own <= how.fuse_rows else 0
        apart = (how.handover or how.beside) * (private + stale)
        held = span.end * (sizes.kv + sizes.all_columns) + apart * sizes.kv + (span.end + base_keys) * sizes.keys
        peak, before = max(peak, held), span.agent
    return prefill, neutral, peak


def _ridge(scheme: Scheme, spans: Sequence[Span], sizes: Sizes) -> Books:
    """Every token once by its speaker and once neutral; an agent holds all it has read, translated or its own."""
    _, seen = read_again(spans)
    return _new_tokens(spans), spans[-1].end, (spans[-1].end + sum(seen.values())) * sizes.kv


def _new_tokens(spans: Sequence[Span]) -> int:
    return sum(span.read - span.start for span in spans)


_FORMULAS: Final[Mapping[str, Callable[[Scheme, Sequence[Span], Sizes], Books]]] = {
    "non_shared": _non_shared,
    "full_shared": _full_shared,
    "base_shared": _base_shared,
    "base_lr_shared": _base_lr_shared,
    "pre_lr_shared": _pre_lr_shared,
    "rebase_shared": _rebase_shared,
    "neutral_prefix": _neutral_prefix,
    "own_kv": _non_shared,
    "ridge": _ridge,
}
