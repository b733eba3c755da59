"""Decode and prefill of pre_lr_shared with three adapters against plain transformers without any.

Both run in one process, turn about, and only ratios are to be quoted: `python -m benchmarks.decode --help`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from peft import PeftModel
from transformers import DynamicCache, PreTrainedModel

from agentrt.engine import Engine
from agentrt.model.backbone import Backbone
from agentrt.model.compute import ComputeThread
from agentrt.model.load import load_model
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_adapter
from agentrt.schemes.make import make_scheme
from benchmarks.machine import describe

AGENTS = ("plan", "action", "reflect")
Timer = Callable[[int], tuple[float, float]]
"""Context length -> seconds to the first token, seconds per decoded token."""


def stock(model: torch.nn.Module, ids: list[int], new_tokens: int) -> Timer:
    """Plain transformers: one forward over the context, then one per token, its own cache."""

    @torch.inference_mode()
    def run(context: int) -> tuple[float, float]:
        cache = DynamicCache(config=model.config)
        start = time.perf_counter()
        out = model(torch.tensor([ids[:context]]), cache=cache, use_cache=True, logits_to_keep=1)
        token = out.logits[0, -1].argmax()
        first = time.perf_counter()
        for _ in range(new_tokens - 1):
            out = model(token.view(1, 1), cache=cache, use_cache=True)
            token = out.logits[0, -1].argmax()
        return first - start, (time.perf_counter() - first) / (new_tokens - 1)

    return run


def ours(engine: Engine, ids: list[int], new_tokens: int) -> Timer:
    """One turn of the engine, worker thread and sampling included."""

    def run(context: int) -> tuple[float, float]:
        session = engine.session()
        usage = session.turn("plan", ids[:context], Sampling(max_new_tokens=new_tokens)).result.usage
        session.close()
        return usage.submit_to_first_token_s, 1 / usage.decode_tokens_per_s

    return run


def measure(timers: dict[str, Timer], context: int, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """One warm-up each, then `repeats` rounds, the contestants turn about."""
    for timer in timers.values():
        timer(context)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in timers}
    for _ in range(repeats):
        for name, timer in timers.items():
            times[name].append(timer(context))
    return times


def _write_adapters(model: PreTrainedModel, folder: Path) -> dict[str, Path]:
    return {name: tiny_adapter(model, folder / name, r=8, alpha=16, seed=i) for i, name in enumerate(AGENTS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--contexts", default="64,1024,2048", help="tokens read before decoding")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peft", action="store_true", help="also transformers + peft with the three adapters loaded")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    ids = torch.randint(10, 40_000, (8192,), generator=torch.Generator().manual_seed(0)).tolist()
    compute = ComputeThread()  # all contestants on one thread: a second OpenMP team would slow them all
    with tempfile.TemporaryDirectory() as folder:
        load = partial(compute.call, load_model, options.model, dtype=options.dtype)
        loaded = load()
        folders = compute.call(_write_adapters, loaded.model, Path(folder))
        timers = {"transformers": partial(compute.call, stock(loaded.model, ids, options.new_tokens))}
        if options.peft:
            other = load().model
            adapted = PeftModel.from_pretrained(other, str(folders["plan"]), "plan", autocast_adapter_dtype=False)
            for name in AGENTS[1:]:
                adapted.load_adapter(str(folders[name]), name, autocast_adapter_dtype=False)
            timers["transformers + peft"] = partial(compute.call, stock(adapted, ids, options.new_tokens))
        model = load()
        backbone = Backbone(model.model, names=model.names, compute=compute)
        adapters = backbone.load_adapters(folders)
        with Engine(backbone, adapters, make_scheme("pre_lr_shared")) as engine:
            timers["pre_lr_shared"] = ours(engine, ids, options.new_tokens)
            rows = []
            for context in map(int, options.contexts.split(",")):
                times = measure(timers, context, options.repeats)
                for name, pairs in times.items():
                    prefill, decode = (statistics.median(column) for column in zip(*pairs, strict=True))
                    ratios = [
                        statistics.median(a[i] / b[i] for a, b in zip(pairs, times["transformers"], strict=True))
                        for i in (0, 1)
                    ]
                    rows.append(
                        {
                            "contestant": name,
                            "context": context,
                            "prefill_s": round(prefill, 4),
                            "decode_ms": round(1e3 * decode, 2),
                            "prefill_ratio": round(ratios[0], 3),
                            "decode_ratio": round(ratios[1], 3),
                        }
                    )
                    print(json.dumps(rows[-1]), flush=True)
    result = {"benchmark": "decode", "model": options.model, "dtype": options.dtype, **describe(), "rows": rows}
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
