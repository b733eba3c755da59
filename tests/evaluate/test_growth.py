"""How a scheme's cost grows with the crew: exact in rows and bytes, and measured side by side."""

from pathlib import Path
from statistics import median

from agentrt.config.trace import TraceConfig
from agentrt.evaluate.replay.adapters import RandomAdapters
from agentrt.evaluate.replay.growth import grown
from agentrt.evaluate.replay.job import run_replay
from agentrt.evaluate.replay.plan import ReplayPlan
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_model

TRACE = """
version: 1
about: four turns, agents in turn
crews: [2, 4]
contexts: [6]
calls: [{repeat: 4, calls: [{agent: next, context: C, decode: 2}]}]
"""


def test_a_second_crew_is_held_against_the_first(tmp_path: Path) -> None:
    backbone = Backbone(tiny_model(layers=2))
    file = tmp_path / "crews.yaml"
    file.write_text(TRACE)
    names = "non_shared,pre_lr_shared,rebase_shared:lp"
    random = RandomAdapters.parse("r=2")
    plan = ReplayPlan(TraceConfig.load(file), "crews", schemes=names, random=random, repeats=2, ride_rows=0)
    two, four = (group for group in run_replay(backbone, plan) if isinstance(group, list))
    assert [finding.growth for finding in two] == [None] * 3
    growth = {finding.outcome.measured.label: finding.growth for finding in four}
    alone, shared, rebased = (growth[name] for name in names.split(","))
    assert alone is not None
    assert shared is not None
    assert rebased is not None
    assert alone.over == "N=2"
    # turns of 6 + 2 tokens: of two agents each reads what came since its own last turn, of four all there is
    assert alone.prefill_rows == round((6 + 14 + 22 + 30) / (6 + 14 + 14 + 14), 4)
    assert shared.prefill_rows == rebased.prefill_rows == rebased.neutral_rows == 1
    assert shared.neutral_rows is None
    kv, column = 2 * 2 * 2 * 8 * 4, 2 * 2 * 4
    assert shared.kv_bytes_peak == rebased.kv_bytes_peak == round((kv + 4 * column) / (kv + 2 * column), 4)
    runs = list(zip(four[0].outcome.measured.runs, two[0].outcome.measured.runs, strict=True))
    assert alone.ttft_s == round(median(a.ttft_s / b.ttft_s for a, b in runs), 4)
    assert grown(four[0].outcome, two[0].outcome._replace(refused="wrong"), "N=2") is None
