"""What a step costs here, measured at start-up: how many rows may ride in a decode step for almost nothing."""

import logging
import time
from typing import Final

from agentrt.cache.layout import KV
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.cache.view import View
from agentrt.engine.config import EngineConfig
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.graphs import DecodeGraphs
from agentrt.model.recorder import CudaGraphs
from agentrt.schemes import Scheme
from agentrt.step import Logits, Pass, Step, Write
from agentrt.trajectory import NEUTRAL

CANDIDATES: Final = (16, 32, 64)
"""Rows a decode step may take along."""
PASS: Final = 256
"""Rows of the pass they would otherwise run in, after the turn."""
PREFIX: Final = 768
"""Tokens that both read: what rides reads them once a step, a pass once."""
REPEATS: Final = 3
PAYS: Final = 0.8
"""What riding may cost at most, as a part of the price apart: it makes the speaker read private slots of its own."""

_log = logging.getLogger("agentrt.engine")


def choose_ride_rows(scheme: Scheme, config: EngineConfig, backbone: Backbone, adapters: AdapterSet) -> int:
    """What the config says, else what is measured; 0 for a scheme that lets nothing ride."""
    if not scheme.rides:
        return 0
    return measure_ride_rows(backbone, adapters, config.cuda_graphs) if config.ride_rows is None else config.ride_rows


def measure_ride_rows(backbone: Backbone, adapters: AdapterSet, cuda_graphs: CudaGraphs = "off") -> int:
    """The candidate whose rows cost least beside one decoded token, or 0 if a pass apart costs hardly more.

    Runs a few forwards over made-up tokens in a cache of its own. With graphs, those are what a token alone runs in.
    """
    return backbone.compute.call(_measure, backbone, adapters, None if cuda_graphs == "off" else backbone.graphs())


def _measure(backbone: Backbone, adapters: AdapterSet, graphs: DecodeGraphs | None) -> int:
    spec = backbone.layout(adapters).kv_spec()
    store = CacheStore([spec], device=backbone.device, segment_slots=2 * (PREFIX + PASS))
    prefix = Tape(store, KV)
    reserve(store, [(prefix, PREFIX)])
    backbone.run(Step((_pass(prefix, PREFIX),)), store.planes, adapters)

    def cost(*sizes: int) -> float:
        tapes = [prefix.fork() for _ in sizes]
        reserve(store, [(tape, PREFIX + size) for tape, size in zip(tapes, sizes, strict=True)])
        step = Step(tuple(_pass(tape, size) for tape, size in zip(tapes, sizes, strict=True)))
        backbone.synchronize()
        start = time.perf_counter()
        backbone.run(step, store.planes, adapters, graphs)
        backbone.synchronize()
        seconds = time.perf_counter() - start
        for tape in tapes:
            tape.close()
        return seconds

    kinds = [(1,), *((1, rows) for rows in CANDIDATES), (PASS,)]
    rounds = [[cost(*sizes) for sizes in kinds] for _ in range(REPEATS + 1)][1:]  # the first warms up
    alone, *beside, whole = map(min, zip(*rounds, strict=True))
    riding = {rows: (seconds - alone) / rows for rows, seconds in zip(CANDIDATES, beside, strict=True)}
    apart = whole / PASS
    best = min(riding, key=lambda rows: riding[rows])
    chosen = best if riding[best] < PAYS * apart else 0
    _log.info(
        "auto: %d rows ride in a decode step (ms a row: %s riding, %.3f after the turn; %.1f ms a decode step)",
        chosen,
        ", ".join(f"{rows}: {1e3 * price:.3f}" for rows, price in riding.items()),
        1e3 * apart,
        1e3 * alone,
    )
    return chosen


def _pass(tape: Tape, rows: int) -> Pass:
    start = tape.end
    runs = tape.extend(start + rows)
    view = View(KV, tape.runs(0, tape.end))
    logits: Logits = "last" if rows == 1 else "none"
    return Pass(NEUTRAL, (0,) * rows, start, view, (Write(KV, 0, runs),), "base", logits)
