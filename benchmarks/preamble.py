"""First token of a session whose preamble is new against one that finds it: `python -m benchmarks.preamble --help`.

Both do the same turn on the same engine; only the preamble's rows differ, and only ratios are to be quoted.
"""

import argparse
import json
import statistics
from pathlib import Path
from random import Random
from typing import NamedTuple

from agentrt.builtin import agents_dir
from agentrt.config.team import Team
from agentrt.engine import Engine, EngineConfig
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.schemes.make import make_scheme
from benchmarks.machine import describe

SCHEMES = "non_shared pre_lr_shared rebase_shared:lp rebase_shared:auto,adapted_tail=16 neutral_prefix:question"


class First(NamedTuple):
    """A session's first turn: seconds from its submission to its first token, and rows run until nothing is owed."""

    ttft_s: float
    rows: int
    reused: int


def first_turn(engine: Engine, agent: str, preamble: list[int], context: list[int]) -> First:
    """Open a session, let `agent` generate two tokens, and close it."""
    before = engine.stats()
    with engine.session(preamble) as session:
        usage = session.turn(agent, context, Sampling(max_new_tokens=2)).result.usage
        session.settle()
    after = engine.stats()
    rows = after.prefill_rows + after.neutral_rows - before.prefill_rows - before.neutral_rows
    return First(usage.submit_to_first_token_s, rows, usage.reused_tokens)


def measure(
    engine: Engine, agent: str, *, preamble: int, context: int, repeats: int, seed: int = 0
) -> list[tuple[First, First]]:
    """Of each repeat, with a preamble of its own: the session that computes it, and the next. The first is a warm-up
    and left out."""
    rng, size = Random(seed), engine.backbone.vocab_size
    found = []
    for _ in range(repeats + 1):
        ids, new = ([rng.randrange(size) for _ in range(count)] for count in (preamble, context))
        found.append((first_turn(engine, agent, ids, new), first_turn(engine, agent, ids, new)))
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--preamble", type=int, default=500, help="tokens")
    parser.add_argument("--context", type=int, default=32, help="tokens of the turn behind it")
    parser.add_argument("--schemes", default=SCHEMES, help="separated by spaces")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    backbone = Backbone.load(options.model)
    adapters = backbone.load_adapters(Team.load(agents_dir() / "search" / "team.yaml").adapters())
    rows: list[dict[str, object]] = []
    for name in options.schemes.split():
        with Engine(backbone, adapters, make_scheme(name), config=EngineConfig(ride_rows=0)) as engine:
            pairs = measure(
                engine, adapters.names[0], preamble=options.preamble, context=options.context, repeats=options.repeats
            )
        first, second = (statistics.median(pair[at].ttft_s for pair in pairs) for at in (0, 1))
        rows.append(
            {
                "scheme": name,
                "first_ttft_s": round(first, 4),
                "second_ttft_s": round(second, 4),
                "ratio": round(statistics.median(b.ttft_s / a.ttft_s for a, b in pairs), 3),
                "first_rows": pairs[0][0].rows,
                "second_rows": pairs[0][1].rows,
                "second_reused_tokens": pairs[0][1].reused,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    told = {key: getattr(options, key) for key in ("model", "preamble", "context", "repeats")}
    result = {"benchmark": "preamble", **told, **describe(), "rows": rows}
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
