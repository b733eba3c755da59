"""What a step costs here, measured at start-up: how many rows may ride in a decode step for almost nothing."""

import logging
import statistics
import time
from typing import Final

from agentrt.cache.layout import KV
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.cache.view import View
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.step import Pass, Step, Write
from agentrt.trajectory import NEUTRAL

CANDIDATES: Final = (8, 16, 32, 64)
"""Rows a decode step may take along."""
PREFILL: Final = (64, 192)
"""Two prefill lengths, whose difference prices a row that is computed at full rate."""
REPEATS: Final = 3

_log = logging.getLogger("agentrt.engine")


def measure_ride_rows(backbone: Backbone, adapters: AdapterSet) -> int:
    """The candidate whose rows cost least beside one decoded token, or 0 if a row costs less inside a prefill.

    Runs a few forwards over made-up tokens in a cache of its own.
    """
    store = CacheStore([backbone.layout(adapters).kv_spec()], device=backbone.device, segment_slots=1024)

    def cost(*sizes: int) -> float:
        tapes = [Tape(store, KV) for _ in sizes]
        reserve(store, list(zip(tapes, sizes, strict=True)))
        step = Step(tuple(_pass(tape, size) for tape, size in zip(tapes, sizes, strict=True)))
        times = []
        for _ in range(REPEATS + 1):  # the first warms up
            backbone.synchronize()
            start = time.perf_counter()
            backbone.run(step, store.planes, adapters)
            backbone.synchronize()
            times.append(time.perf_counter() - start)
        for tape in tapes:
            tape.close()
        return statistics.median(times[1:])

    alone = cost(1)
    riding = {rows: (cost(1, rows) - alone) / rows for rows in CANDIDATES}
    short, long = (cost(rows) for rows in PREFILL)
    in_prefill = (long - short) / (PREFILL[1] - PREFILL[0])
    best = min(riding, key=lambda rows: riding[rows])
    chosen = best if riding[best] < in_prefill else 0
    _log.info(
        "auto: %d rows ride in a decode step (ms a row: %s riding, %.3f in a prefill; %.1f ms a decode step)",
        chosen,
        ", ".join(f"{rows}: {1e3 * price:.3f}" for rows, price in riding.items()),
        1e3 * in_prefill,
        1e3 * alone,
    )
    return chosen


def _pass(tape: Tape, rows: int) -> Pass:
    runs = tape.extend(rows)
    return Pass(NEUTRAL, (0,) * rows, 0, View(KV, runs), (Write(KV, 0, runs),), "base", "last" if rows == 1 else "none")
