"""The default backbone, resumed: after kill -9 the tokens of a whole run in fp32, and in bf16 logits within a bound."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from agentrt.builtin import configs_dir
from agentrt.engine import EngineConfig
from agentrt.errors import BackboneError
from agentrt.model.sampling import Sampling
from agentrt.runtime.episode import Runtime
from agentrt.runtime.result import EpisodeResult
from agentrt.runtime.runlog import RESULT_FILE
from tests.kills import DEATHS, SMALLER_STEPS, deadly_tools
from tests.real_crew import real_backbone, real_engine, real_team
from tests.watched import WatchedBackbone

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

SCHEMES = ("pre_lr_shared", "rebase_shared:lp")
BOUND, KL_BOUND = 2.0, 0.03
"""Most that a bf16 logit of a resumed turn may differ, and KL of a next token in nats, where steps were packed
otherwise. Logits span 74, and bf16 counts the largest of them in quarters. docs/recovery.md states both."""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_after_kill_9_the_tokens_are_those_of_the_whole_run(tmp_path: Path, scheme: str) -> None:
    try:
        make = real_backbone("float32")
    except BackboneError as error:
        pytest.skip(f"the default backbone cannot be had here: {error}")
    subprocess.run([sys.executable, "-m", "tests.kills", str(tmp_path), scheme, "--real"], check=True, timeout=550)
    runs = tmp_path / "runs"
    whole = EpisodeResult.model_validate_json((runs / "whole" / RESULT_FILE).read_text())
    with (
        real_engine(make(), scheme, SMALLER_STEPS) as engine,
        Runtime(real_team(), engine=engine, tools=deadly_tools(), out=runs) as rt,
    ):
        for run_id in DEATHS:
            assert not (runs / run_id / RESULT_FILE).exists()
            assert rt.resume(run_id).token_ids == whole.token_ids, run_id


class Turn(NamedTuple):
    """A turn of `role` behind `context`: what it generated, and the logits [tokens, vocab] that gave it."""

    role: str
    context: list[int]
    generated: tuple[int, ...]
    logits: torch.Tensor


TURNS = [("plan", 300, 24), ("plan", 3, 4), ("action", 1, 12), ("plan", 90, 24), ("action", 4, 8), ("reflect", 9, 12)]


@pytest.fixture(scope="module")
def backbone() -> WatchedBackbone:
    try:
        return real_backbone("bfloat16", WatchedBackbone)()  # type: ignore[return-value]
    except BackboneError as error:
        pytest.skip(f"the default backbone cannot be had here: {error}")


def play(backbone: WatchedBackbone, scheme: str, config: EngineConfig, turns: list[Turn]) -> list[Turn]:
    """The turns in one session. What a turn has generated already is forced, as in a run that is resumed."""
    played, rows = [], list[torch.Tensor]()
    backbone.after = lambda logits: rows.extend(each[-1].float() for each in logits if each is not None)
    with real_engine(backbone, scheme, config) as engine, engine.session() as session:
        for turn, (_, _, most) in zip(turns, TURNS, strict=False):
            rows.clear()
            sampling = Sampling(max_new_tokens=len(turn.generated) or most, forced=turn.generated)
            generated = session.turn(turn.role, turn.context, sampling).result.token_ids
            played.append(turn._replace(generated=generated, logits=torch.stack(rows)))
    return played


@pytest.mark.parametrize("scheme", SCHEMES)
def test_in_bf16_the_logits_of_a_resumed_turn_stay_within_the_bound(backbone: WatchedBackbone, scheme: str) -> None:
    """From several turn boundaries on: the same with the same steps, within the bound where steps are others."""
    lines = (configs_dir() / "mini" / "articles.jsonl").read_text(encoding="utf-8").splitlines()
    assert backbone.tokenizer is not None
    text = backbone.tokenizer.encode(" ".join("".join(json.loads(line)["sentences"]) for line in lines[:12]))
    asked = []
    for role, count, _ in TURNS:
        asked.append(Turn(role, text[:count], (), torch.empty(0)))
        text = text[count:]
    whole = play(backbone, scheme, EngineConfig(), asked)
    for at in (1, 3, 5):
        *_, same = play(backbone, scheme, EngineConfig(), whole[: at + 1])
        assert torch.equal(same.logits, whole[at].logits)
        *_, other = play(backbone, scheme, EngineConfig(max_step_tokens=16), whole[: at + 1])
        assert float((other.logits - whole[at].logits).abs().max()) <= BOUND
        expected, given = (turn.logits.log_softmax(-1) for turn in (whole[at], other))
        assert float((expected.exp() * (expected - given)).sum(-1).max()) <= KL_BOUND
