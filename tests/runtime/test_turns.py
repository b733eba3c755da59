from dataclasses import dataclass
from typing import Any

import pytest

from agentrt.runtime.events import RoleUsage, TurnFacts
from agentrt.runtime.state import RunContext
from agentrt.runtime.turns import _TextStream, add_turn, turn_seed
from agentrt.testing import ByteTokenizer


@dataclass(frozen=True)
class Facts:
    generated: int
    ttft_s: float
    rate: float
    kv_bytes: int

    def facts(self) -> TurnFacts:
        return TurnFacts(
            context_tokens=2,
            reused_tokens=10,
            recomputed_tokens=1,
            reconstructed_tokens=2,
            generated_tokens=self.generated,
            ttft_s=self.ttft_s,
            submit_to_first_token_s=1.0,
            decode_tokens_per_s=self.rate,
            kv_bytes=self.kv_bytes,
        )


def test_turns_add_up_to_sums_means_pooled_rates_and_peaks() -> None:
    usage = RoleUsage()
    for facts in (Facts(10, 0.1, 10.0, 300), Facts(30, 0.3, 30.0, 200), Facts(1, 0.2, 0.0, 100)):
        usage = add_turn(usage, facts.facts())
    assert (usage.turns, usage.reused_tokens, usage.recomputed_tokens, usage.generated_tokens) == (3, 30, 3, 41)
    assert usage.reconstructed_tokens == 6
    assert usage.ttft_s == pytest.approx(0.2)
    assert usage.decode_tokens_per_s == pytest.approx((9 + 29) / (9 / 10 + 29 / 30))
    assert usage.kv_bytes == 300


def test_a_turn_seed_depends_on_seed_question_and_turn_alone() -> None:
    seeds = {turn_seed(seed, question, turn) for seed in (0, 1) for question in ("a", "b") for turn in (1, 2)}
    assert len(seeds) == 8
    assert turn_seed(0, "a", 1) == turn_seed(0, "a", 1) < 2**64


def test_streamed_text_holds_back_half_characters_and_loses_nothing() -> None:
    tokenizer = ByteTokenizer()
    stream = _TextStream(tokenizer)
    pushed = [stream.push(token_id) for token_id in tokenizer.encode("aé東!")]
    assert pushed == ["a", "", "é", "", "", "東", "!"]


def test_a_cancel_that_comes_while_the_turn_ends_is_no_error() -> None:
    class Ending(RunContext):
        """Its turn is there when first looked at, and then no more."""

        looks = 0

        def __getattribute__(self, name: str) -> Any:
            if name != "turn":
                return super().__getattribute__(name)
            self.looks += 1
            return Cancellable() if self.looks == 1 else None

    class Cancellable:
        def cancel(self) -> None: ...

    nothing: Any = None
    context = Ending(nothing, nothing, nothing, nothing, lambda event: None, 0, 10, 0.0)
    context.cancel()
    assert context.cancelled.is_set()
