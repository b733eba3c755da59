"""Activated LoRA: trained over base contexts from each invocation on, and then what peft and `alora` serve."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from agentrt.config.team import Override, Team
from agentrt.engine import Engine
from agentrt.errors import ConfigError, DataError
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_model
from agentrt.model.trainable import LoraSettings, TrainableAdapter
from agentrt.runtime.dialect import Renderer
from agentrt.schemes.make import make_scheme
from agentrt.testing import ByteTokenizer
from agentrt.training.activated import activated_examples, invocations
from agentrt.training.examples import Recorded, RecordedSpan
from agentrt.training.settings import ACTIVATED_CONTEXTS, TrainSettings
from agentrt.training.trainer import Trainer

PLAN, ACTION = (101, 102), (103,)
LORA = LoraSettings(rank=4, alpha=10, targets=("q_proj", "k_proj", "v_proj", "o_proj"), invocation=PLAN)


def make_recorded(seed: int = 0) -> Recorded:
    """Plan takes over twice, the first time for two fields; action once between."""
    generator = torch.Generator().manual_seed(seed)

    def words(count: int) -> list[int]:
        return torch.randint(3, 90, (count,), generator=generator).tolist()

    token_ids: list[int] = []
    spans: list[RecordedSpan] = []
    for author, kind, ids in (
        ("user", "question", words(6)),
        ("runtime", "instruction", list(PLAN)),
        ("plan", "thought", [7, 8, 9]),
        ("runtime", "label", [50]),
        ("plan", "action", [10]),
        ("runtime", "instruction", list(ACTION)),
        ("action", "argument", [11, 12]),
        ("Search", "observation", words(5)),
        ("runtime", "instruction", list(PLAN)),
        ("plan", "thought", [7, 13, 9]),
    ):
        spans.append(RecordedSpan(len(token_ids), len(token_ids) + len(ids), author, kind))
        token_ids += ids
    return Recorded(f"r{seed}", f"q{seed}", tuple(token_ids), tuple(spans))


def test_each_takeover_is_an_example_from_its_invocation_on() -> None:
    recorded = make_recorded()
    first, second = activated_examples(recorded, "plan", PLAN)
    assert (first.fields, first.own_rows) == ((("thought", 8, 11), ("action", 12, 13)), tuple(range(6, 12)))
    assert first.token_ids == recorded.token_ids[:13]
    assert (second.fields, second.own_rows) == ((("thought", 23, 26),), tuple(range(21, 25)))
    [action] = activated_examples(recorded, "action", ACTION)
    assert (action.fields, action.own_rows) == ((("argument", 14, 16),), (13, 14))


def test_a_mistake_is_context_within_its_takeover() -> None:
    recorded = make_recorded()
    spans = tuple(s._replace(taught=False) if s.kind == "action" or s.start == 23 else s for s in recorded.spans)
    [only] = activated_examples(Recorded("r", "q", recorded.token_ids, spans), "plan", PLAN)
    assert only.fields == (("thought", 8, 11),)


def test_a_trajectory_of_another_instruction_is_refused() -> None:
    with pytest.raises(DataError, match="nothing invokes 'plan' before position 8"):
        activated_examples(make_recorded(), "plan", (101, 103))


def test_the_invocation_is_the_instruction_as_the_runtime_gives_it() -> None:
    with pytest.raises(ConfigError, match="'reflect' has none; add `instruction:`"):
        invocations(Team.load("search"), ByteTokenizer(), ["plan", "reflect"])
    told = Override(("roles", "plan", "instruction"), "Plan now.", "the test")
    team = Team.load("search", overrides=[told], need_adapters=False)
    renderer = Renderer(team.dialect, ByteTokenizer())
    assert invocations(team, ByteTokenizer(), ["plan"]) == {"plan": tuple(renderer.instruction("Plan now."))}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainableAdapter, Path, float, float]:
    examples = [each for seed in range(8) for each in activated_examples(make_recorded(seed), "plan", PLAN)]
    learner = TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LORA)
    settings = TrainSettings(passes=10, learning_rate=2e-2, warmup_steps=4, held_out=0, contexts=ACTIVATED_CONTEXTS)
    result = Trainer(learner, examples, settings).run()
    with torch.no_grad():  # bf16 on disk: round first, to compare exactly
        for weight in learner.parameters.values():
            weight.copy_(weight.to(torch.bfloat16))
    folder = tmp_path_factory.mktemp("activated") / "plan"
    learner.save(folder)
    return learner, folder, result.losses[0], result.last_loss


def learnt_logits(learner: TrainableAdapter, recorded: Recorded) -> list[torch.Tensor]:
    with torch.no_grad():
        return [
            learner.shared_logits(
                torch.tensor(example.token_ids),
                torch.tensor(example.own_rows),
                torch.tensor(example.targets) - 1,
                "neutral",
            )
            for example in activated_examples(recorded, "plan", PLAN)
        ]


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft 0.21 on transformers 5.24
def test_what_was_trained_is_what_peft_serves(trained: tuple[TrainableAdapter, Path, float, float]) -> None:
    learner, folder, first, last = trained
    assert last < 0.3 * first
    assert json.loads((folder / "adapter_config.json").read_text())["alora_invocation_tokens"] == list(PLAN)
    served = PeftModel.from_pretrained(tiny_model(), str(folder)).eval()
    recorded = make_recorded(99)
    for example, ours in zip(activated_examples(recorded, "plan", PLAN), learnt_logits(learner, recorded), strict=True):
        with torch.no_grad():
            theirs = served(torch.tensor([example.token_ids])).logits[0, torch.tensor(example.targets) - 1]
        assert torch.allclose(ours, theirs, atol=1e-4)


def test_the_scheme_alora_writes_token_for_token_what_was_trained(
    trained: tuple[TrainableAdapter, Path, float, float],
) -> None:
    learner, folder, _, _ = trained
    recorded = make_recorded(3)
    examples, ours = activated_examples(recorded, "plan", PLAN), learnt_logits(learner, recorded)
    backbone = Backbone(tiny_model(), names=("agentrt/tiny-llama",))
    with Engine(backbone, backbone.load_adapters({"plan": folder}), make_scheme("alora")) as engine:
        for example, logits in zip(examples, ours, strict=True):
            field = example.fields[0]
            length = field.end - field.start
            with engine.session() as session:
                turn = session.turn("plan", example.token_ids[: field.start], Sampling(max_new_tokens=length))
                written = turn.result.token_ids
            assert written == example.token_ids[field.start : field.end]
            assert written == tuple(logits[:length].argmax(-1).tolist())
