"""What the selective schemes must compute again: their definitions and closed formulas, no engine."""

from collections.abc import Sequence
from typing import NamedTuple

from agentrt.cache.layout import Layout
from agentrt.evaluate.replay.trace import Span
from agentrt.model.patches import Choice, Patch
from agentrt.schemes.cacheblend import CHECK_LAYER, CacheBlend, value_change
from agentrt.schemes.droidspeak import DroidSpeak
from agentrt.schemes.relay_caching import TAIL, RelayCaching, deviation_or_influence
from agentrt.schemes.selective import Selective


class DefinedRepair(NamedTuple):
    """Which rows stand in for the shared ones, and at which layer they start from the sender's states, if they do."""

    patches: tuple[Patch, ...]
    enters_at: int | None = None


def define_repair(scheme: Selective, layout: Layout, start: int, numbers: Sequence[int]) -> DefinedRepair:
    """`numbers` are the rows of the agent for the positions from `start` on that it has not read."""
    rows = tuple(numbers)
    if isinstance(scheme, DroidSpeak):
        layers = scheme.layer_set(layout)
        return DefinedRepair((Patch(start, rows, layers),), layers[0] if layers else None)
    if isinstance(scheme, CacheBlend):
        choice = Choice(CHECK_LAYER, _kept(scheme, len(rows)), value_change)
        first, rest = range(CHECK_LAYER + 1), range(CHECK_LAYER + 1, layout.num_layers)
        return DefinedRepair((Patch(start, rows, tuple(first)), Patch(start, rows, tuple(rest), choice)))
    assert isinstance(scheme, RelayCaching)
    stages = scheme.stages(layout)
    if stages is None:
        return DefinedRepair(())
    choice = Choice(stages.detect, _kept(scheme, len(rows)), deviation_or_influence)
    first, rest = range(stages.start, stages.detect), range(stages.detect, stages.end + 1)
    return DefinedRepair((Patch(start, rows, tuple(first)), Patch(start, rows, tuple(rest), choice)))


class Cost(NamedTuple):
    """Of `unread` tokens: rows counted once a layer, rows kept counted once a layer, hidden states held meanwhile."""

    layer_rows: int
    kept_rows: int
    states: int = 0


def repairs(scheme: Selective, spans: Sequence[Span], layout: Layout) -> tuple[int, int]:
    """Rows of repairs, counted once for each layer they enter, and the most bytes held at any time."""
    kv = layout.kv_spec().row_bytes
    state = layout.hidden_size * layout.dtype.itemsize
    every_state = state if isinstance(scheme, DroidSpeak) and scheme.layer_set(layout) else 0
    computed = kept = peak = 0
    read: dict[str, int] = {}
    for span in spans:
        cost = _cost(scheme, layout, span.start - read.get(span.agent, 0))
        computed, kept = computed + cost.layer_rows, kept + cost.kept_rows
        held = span.end * (kv + every_state) + kept * kv // layout.num_layers
        peak, read[span.agent] = max(peak, held + cost.states * state), span.end
    return computed, peak


def _cost(scheme: Selective, layout: Layout, unread: int) -> Cost:
    if isinstance(scheme, DroidSpeak):
        layers = scheme.layer_set(layout)
        span = layers[-1] + 1 - layers[0] if layers else 0
        return Cost(span * unread, len(layers) * unread)
    if isinstance(scheme, CacheBlend):
        rows = 2 * unread + (layout.num_layers - 2) * _kept(scheme, unread)
        return Cost(rows, rows, unread if layout.num_layers > 2 else 0)
    assert isinstance(scheme, RelayCaching)
    stages = scheme.stages(layout)
    if stages is None:
        return Cost(0, 0)
    start, detect, end = stages
    kept = _kept(scheme, unread)
    rows = (detect + 1) * unread + (end - detect) * kept
    return Cost(rows, (detect - start) * unread + (end - detect + 1) * kept, unread if detect else 0)


def _kept(scheme: CacheBlend | RelayCaching, unread: int) -> int:
    share = int(round(scheme.ratio * unread, 9))
    return max(share, min(TAIL, unread)) if isinstance(scheme, RelayCaching) else share
