"""The price of the low-rank value term in attention on this machine: `python -m benchmarks.attention --help`.

One layer's attention with and without the term, turn about, as the engine runs it on a CPU: decode through the
compiled kernel (and through the torch reference, which other systems fall back to), prefill through the reference.
Only ratios are to be quoted.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from agentrt_kernels.lora_attention import Block, lora_attention
from agentrt_kernels.lora_attention.decode import Decode
from agentrt_kernels.lora_attention.pieces import Piece, Row, Where
from benchmarks.machine import describe

LAYERS = 30
"""As many layers' keys are read in turn, so that they come from where they come from in a model."""


def cases(
    keys: int, new: int, heads: int, kv_heads: int, d: int, rank: int, *, compiled: bool
) -> dict[bool, Callable[[], None]]:
    """By whether the term is read: `new` queries at the end of `keys` positions, in every layer."""
    dtype, prefix = torch.bfloat16, keys - new
    k, v = (torch.randn(LAYERS, keys, kv_heads, d).to(dtype) for _ in range(2))
    rows = torch.randn(keys * LAYERS * rank + d).to(dtype)
    wide = rows.as_strided((LAYERS, keys, d), (rank, LAYERS * rank, 1))  # as planes hold them: slots, layers, rank
    q, up = torch.randn(new, heads, d).to(dtype), torch.randn(rank, kv_heads, d)
    cuts = [(0, prefix), (prefix, keys)] if new > 1 else [(0, keys)]

    @torch.inference_mode()
    def attend(ranked: bool) -> None:
        for layer in range(LAYERS):
            blocks = []
            for low, high in cuts:
                term = (wide[layer, low:high, :rank], wide[layer, low:high]) if ranked else (None, None)
                blocks.append(Block(low, k[layer, low:high], v[layer, low:high], *term))
            lora_attention(q, prefix, blocks, up if ranked else None, scale=d**-0.5)

    @torch.inference_mode()
    def decode(ranked: bool) -> None:
        low = Where(wide.data_ptr(), *(2 * each for each in wide.stride()[:2])) if ranked else None
        places = (Where(each.data_ptr(), *(2 * step for step in each.stride()[:2])) for each in (k, v))
        row = Row(0, [Piece(keys, *places, low)], [up.data_ptr()] * LAYERS if ranked else [], rank if ranked else 0)
        shape = {"kv_heads": kv_heads, "group": heads // kv_heads, "head_dim": d, "num_layers": LAYERS}
        step, out = Decode([row], dtype=dtype, **shape), torch.empty_like(q)
        for layer in range(LAYERS):
            step.run(layer, q, out, d**-0.5)

    run = decode if compiled else attend
    return {ranked: partial(run, ranked) for ranked in (False, True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", default="1024,2048,4096", help="keys that a decoded token reads")
    parser.add_argument("--prefill", default="1024,4096", metavar="NEW,PREFIX", help="rows of a prefill, and before it")
    parser.add_argument("--heads", default="9,3,64", metavar="H,HKV,D", help="default: SmolLM2-135M's")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    heads, kv_heads, d = map(int, options.heads.split(","))
    new, before = map(int, options.prefill.split(","))
    rows = []
    decoded = [(int(keys), 1, compiled) for compiled in (True, False) for keys in options.keys.split(",")]
    for keys, queries, compiled in [*decoded, (new + before, new, False)]:
        runs = cases(keys, queries, heads, kv_heads, d, options.rank, compiled=compiled)
        times: dict[bool, list[float]] = {ranked: [] for ranked in runs}
        for repeat in range(options.repeats + 1):
            for ranked, run in runs.items():
                start = time.perf_counter()
                run()
                if repeat:  # the first warms up
                    times[ranked].append(time.perf_counter() - start)
        ratio = statistics.median(b / a for a, b in zip(times[False], times[True], strict=True))
        plain, ranked = (1e3 * statistics.median(times[each]) / LAYERS for each in (False, True))
        rows.append({"keys": keys, "queries": queries, "compiled": compiled})
        rows[-1].update({"plain_ms": round(plain, 3), "term_ms": round(ranked, 3), "ratio": round(ratio, 3)})
        print(json.dumps(rows[-1]), flush=True)
    told = {key: getattr(options, key) for key in ("heads", "rank", "repeats")}
    if options.out:
        result = {"benchmark": "attention", **told, **describe(), "rows": rows}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
