"""A tiny model learns, resumes to the same weights, and its saved folder serves what was trained."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from agentrt.errors import DataError, UsageError
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.model.trainable import LoraSettings, TrainableAdapter
from agentrt.training.examples import Example, TaughtField
from agentrt.training.settings import SHARED_CONTEXTS, TrainSettings
from agentrt.training.trainer import Trainer, split_held_out

SETTINGS = TrainSettings(passes=6, learning_rate=2e-2, warmup_steps=4, max_batch_tokens=96, held_out=0.2)


def make_examples(count: int = 20) -> list[Example]:
    """Copying: the last three tokens repeat tokens 2 to 4."""
    generator = torch.Generator().manual_seed(3)
    examples = []
    for index in range(count):
        head = torch.randint(3, 30, (9 + index % 4,), generator=generator).tolist()
        token_ids = (*head, 7, 8, 9)
        field = TaughtField("argument", len(head), len(head) + 3)
        examples.append(Example(f"e{index}", f"q{index}", token_ids, (field,)))
    return examples


def make_learner(seed: int = 0) -> TrainableAdapter:
    return TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LoraSettings(rank=4, alpha=12), seed)


def test_loss_falls_and_only_lora_weights_change() -> None:
    model = tiny_model()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    learner = TrainableAdapter(model, "agentrt/tiny-llama", LoraSettings(rank=4, alpha=12))
    result = Trainer(learner, make_examples(), SETTINGS).run()
    assert result.last_loss < 0.3 * result.losses[0]
    assert result.held_out is not None
    assert result.held_out_before is not None
    assert result.held_out.loss < 0.5 * result.held_out_before.loss
    assert all(weight.dtype == torch.float32 for weight in learner.parameters.values())
    for name, weight in model.named_parameters():
        if "lora_" not in name:
            assert torch.equal(weight, before[name.replace(".base_layer", "")])


class SpoiltLearner:
    """Logits that are not finite from the `spoilt`-th forward pass on, or whose gradients are not."""

    def __init__(self, spoilt: int, *, gradient: bool = False) -> None:
        self._spoilt, self._gradient, self._passes = spoilt, gradient, 0
        self.parameters = {"w": torch.nn.Parameter(torch.ones(64))}

    def logits(self, token_ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        self._passes += 1
        logits = self.parameters["w"].expand(len(rows), 64)
        if self._passes < self._spoilt:
            return logits
        return logits + (self.parameters["w"] - 1).sqrt() if self._gradient else logits * torch.inf

    def shared_logits(self, *anything: object) -> torch.Tensor:
        raise NotImplementedError


@pytest.mark.parametrize("gradient", [False, True])
def test_a_step_that_is_not_finite_is_not_taken(gradient: bool) -> None:
    learner = SpoiltLearner(1 if gradient else 3, gradient=gradient)
    trainer = Trainer(learner, make_examples(), replace(SETTINGS, held_out=0.0), role="plan")
    with pytest.raises(UsageError, match=r"training plan diverged at step .*--lr 0.005"):
        trainer.run()
    assert torch.isfinite(learner.parameters["w"]).all()


def test_a_training_whose_last_step_spoils_it_is_an_error() -> None:
    settings = replace(SETTINGS, passes=0.01, max_batch_tokens=10_000)
    with pytest.raises(UsageError, match="diverged at step 1 of 1: held-out loss nan"):
        Trainer(SpoiltLearner(3), make_examples(), settings).run()


def test_a_fresh_adapter_changes_nothing_and_padding_changes_no_row() -> None:
    token_ids = torch.tensor([[5, 6, 7, 8, 9]])
    rows = torch.tensor([2, 4])
    plain = tiny_model()(token_ids).logits[0, rows]
    learner = make_learner()
    padded = torch.cat([token_ids, torch.zeros(1, 27, dtype=torch.long)], dim=1)
    with torch.no_grad():
        assert torch.allclose(learner.logits(token_ids, rows), plain, atol=1e-5)
        assert torch.allclose(learner.logits(padded, rows), plain, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft 0.21 on transformers 5.24
def test_saved_folder_loads_with_peft_and_equals_the_trained_model(tmp_path: Path) -> None:
    learner = make_learner()
    Trainer(learner, make_examples(), SETTINGS).run()
    with torch.no_grad():  # bf16 on disk: round first, to compare exactly
        for weight in learner.parameters.values():
            weight.copy_(weight.to(torch.bfloat16))
    learner.save(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "agentrt/tiny-llama"
    assert config["target_modules"] == ["q_proj", "v_proj"]
    token_ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    served = PeftModel.from_pretrained(tiny_model(), str(tmp_path)).eval()
    with torch.no_grad():
        expected = served(token_ids).logits[0]
        assert torch.allclose(learner.logits(token_ids, torch.arange(6)), expected, atol=1e-5)


def test_resumed_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    straight = make_learner()
    Trainer(straight, make_examples(), SETTINGS).run()

    class StopError(Exception):
        pass

    first = make_learner()
    trainer = Trainer(first, make_examples(), SETTINGS)

    def stop_after_ten(facts: object) -> None:
        if trainer.result.steps == 10:
            trainer.save_state(tmp_path / "state.pt")
            raise StopError

    with pytest.raises(StopError):
        trainer.run(stop_after_ten)
    second = make_learner()
    resumed = Trainer(second, make_examples(), SETTINGS)
    resumed.load_state(tmp_path / "state.pt")
    assert resumed.result.steps == 10
    resumed.run()
    for name, weight in straight.parameters.items():
        assert torch.equal(weight, second.parameters[name])


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # as above
def test_a_role_learns_over_contexts_of_others_too(tmp_path: Path) -> None:
    other = tiny_adapter(tiny_model(), tmp_path / "other", seed=9)
    learner = TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LoraSettings(rank=4, alpha=12), other=other)
    turns = [(e, range(e.targets[0] - 2, len(e.token_ids) - 1)) for e in make_examples()]
    examples = [replace(e, own_rows=tuple(rows), since=(rows.start,) * len(rows)) for e, rows in turns]
    trainer = Trainer(learner, examples, replace(SETTINGS, contexts=SHARED_CONTEXTS))
    before = trainer.evaluate("other_lr")
    result = trainer.run()
    assert before is not None
    assert result.held_out_shared is not None
    assert result.held_out_shared.loss < 0.5 * before.loss
    assert result.held_out is not None
    assert result.held_out.loss < 0.5 * before.loss


def test_resume_refuses_other_settings_and_other_data(tmp_path: Path) -> None:
    trainer = Trainer(make_learner(), make_examples(), SETTINGS)
    trainer.save_state(tmp_path / "state.pt")
    with pytest.raises(UsageError, match="other settings"):
        Trainer(make_learner(), make_examples(), TrainSettings(passes=1)).load_state(tmp_path / "state.pt")
    with pytest.raises(UsageError, match="other data"):
        Trainer(make_learner(), make_examples(12), SETTINGS).load_state(tmp_path / "state.pt")


def test_all_trajectories_of_a_question_are_on_one_side() -> None:
    twice = [Example(f"{e.id}-{n}", e.question_id, e.token_ids, e.fields) for e in make_examples(40) for n in "ab"]
    train, held = split_held_out(twice, TrainSettings(held_out=0.3, max_held_out=100))
    assert held
    assert not {e.question_id for e in train} & {e.question_id for e in held}
    assert len(train) + len(held) == 80


def test_whole_questions_are_held_out_up_to_the_cap_wherever_they_stand_and_all_others_learnt() -> None:
    twice = [Example(f"{e.id}-{n}", e.question_id, e.token_ids, e.fields) for e in make_examples(40) for n in "ab"]
    train, held = split_held_out(twice, TrainSettings(held_out=0.5, max_held_out=5))
    assert len(held) == 6
    assert len({e.question_id for e in held}) == 3
    assert [*train, *held] != twice
    assert {e.id for e in train} | {e.id for e in held} == {e.id for e in twice}
    backwards = split_held_out(twice[::-1], TrainSettings(held_out=0.5, max_held_out=5))[1]
    assert {e.id for e in backwards} == {e.id for e in held}, "not the first file's"


def test_the_learning_rate_warms_up_and_ends_at_zero() -> None:
    settings = TrainSettings(learning_rate=1.0, warmup_steps=4)
    assert settings.rate(0, 0.0) == pytest.approx(0.25)
    assert settings.rate(4, 0.0) == pytest.approx(1.0)
    assert settings.rate(100, 0.5) == pytest.approx(0.5)
    assert settings.rate(200, 1.0) == pytest.approx(0.0)


def test_a_time_limit_ends_training_early() -> None:
    trainer = Trainer(make_learner(), make_examples(), TrainSettings(passes=1e6, max_minutes=0.005, held_out=0.0))
    assert 0 < trainer.run().steps < trainer.total_steps


def test_nothing_to_train_on_is_an_error() -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        Trainer(make_learner(), [], SETTINGS)


@pytest.mark.parametrize("field", ["passes", "learning_rate", "sequences_per_step", "max_minutes"])
def test_a_setting_out_of_range_is_named(field: str) -> None:
    with pytest.raises(UsageError, match=field):
        TrainSettings(**{field: 0})
