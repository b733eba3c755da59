"""Trains one adapter on one role's examples. Knows no text, no runtime and no peft."""

import hashlib
import json
import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import nn
from torch.nn import functional as F

from agentrt.errors import DataError, UsageError
from agentrt.model.trainable import Context
from agentrt.training.batches import collate, shuffled_steps, split_by_tokens
from agentrt.training.examples import Example
from agentrt.training.scores import Score, Tally
from agentrt.training.settings import TrainSettings


class Learner(Protocol):
    """What is trained: `agentrt.model.trainable.TrainableAdapter`."""

    @property
    def parameters(self) -> dict[str, nn.Parameter]: ...

    def logits(self, token_ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor: ...

    def shared_logits(
        self, token_ids: torch.Tensor, own: torch.Tensor, rows: torch.Tensor, context: Context, since: torch.Tensor
    ) -> torch.Tensor: ...


class StepFacts(NamedTuple):
    """One optimiser step: mean loss per target in nats, and how far training has come (0 to 1)."""

    step: int
    total_steps: int
    loss: float
    learning_rate: float
    grad_norm: float
    tokens: int
    seconds: float
    progress: float


_SCORES: Final = ("held_out_before", "held_out", "held_out_shared")


@dataclass
class TrainResult:
    """`first_loss` and `last_loss` are means over (at most) the first and last twenty steps."""

    steps: int = 0
    tokens: int = 0
    targets: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    held_out_before: Score | None = None
    held_out: Score | None = None
    held_out_shared: Score | None = None
    """As `held_out`, which is over the first context of the settings, but over the most frequent of the others."""

    @property
    def first_loss(self) -> float:
        return _mean(self.losses[:20])

    @property
    def last_loss(self) -> float:
        return _mean(self.losses[-20:])

    def to_json(self) -> dict[str, Any]:
        scores = {name: score.to_json() if (score := getattr(self, name)) else None for name in _SCORES}
        return {**vars(self), **scores}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TrainResult":
        scores = {name: Score.from_json(value[name]) if value[name] else None for name in _SCORES}
        return cls(**{**value, **scores})


def split_held_out(examples: Sequence[Example], settings: TrainSettings) -> tuple[list[Example], list[Example]]:
    """(train, held out). Questions go by a hash of their text, whole: all examples of a question are on one side.

    The lowest hashes are held out, as far as the settings' share goes, until `max_held_out` examples are.
    """
    of_question = Counter(example.question_id for example in examples)
    held: set[str] = set()
    count = 0
    for share, question in sorted((_share(question), question) for question in of_question):
        if share >= settings.held_out or count >= settings.max_held_out:
            break
        held.add(question)
        count += of_question[question]
    return (
        [example for example in examples if example.question_id not in held],
        [example for example in examples if example.question_id in held],
    )


def _share(question: str) -> float:
    """Where a question lies in [0, 1)."""
    digest = hashlib.sha256(question.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


class Trainer:
    """AdamW on the learner's parameters; every step ends with gradients zeroed, so it can stop after any."""

    def __init__(
        self,
        learner: Learner,
        examples: Sequence[Example],
        settings: TrainSettings,
        *,
        role: str = "",
        made_of: Mapping[str, str] | None = None,
    ) -> None:
        """`role` is named in errors. `made_of`: what a saved run must have in common with this one to go on; None:
        settings and examples."""
        self._learner = learner
        self._role = role
        self._settings = settings
        self._train, self._held = split_held_out(examples, settings)
        if not self._train:
            raise DataError(f"there is nothing to train on: {len(examples)} examples, all of them held out")
        self._weights = learner.parameters
        self._made_of = identity(examples, settings) if made_of is None else dict(made_of)
        self._optimizer = torch.optim.AdamW(
            self._weights.values(), lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.0
        )
        self._order = shuffled_steps(len(self._train), settings.sequences_per_step, settings.seed)
        self.result = TrainResult()

    @property
    def total_steps(self) -> int:
        return self._settings.total_steps(len(self._train))

    @property
    def num_train(self) -> int:
        return len(self._train)

    @property
    def num_held_out(self) -> int:
        return len(self._held)

    @property
    def num_held_out_questions(self) -> int:
        return len({example.question_id for example in self._held})

    def run(
        self,
        report: Callable[[StepFacts], None] = lambda facts: None,
        *,
        checkpoint: Callable[[], None] = lambda: None,
        checkpoint_every_s: float = 180.0,
    ) -> TrainResult:
        """Train to the end from wherever it stands. `checkpoint` is called now and then, between two steps.

        Raises UsageError, naming step and learning rate, where a loss or a gradient is not finite.
        """
        main, *others = self._settings.contexts
        if self.result.held_out_before is None and self.result.steps == 0:
            self.result.held_out_before = self.evaluate(main[0])
        saved = time.monotonic()
        while (progress := self._progress()) < 1.0:
            report(self._step(progress))
            if time.monotonic() - saved >= checkpoint_every_s:
                checkpoint()
                saved = time.monotonic()
        self.result.held_out = self.evaluate(main[0])
        if self.result.held_out is not None and not math.isfinite(self.result.held_out.loss):
            raise self._diverged(self.result.steps, f"held-out loss {self.result.held_out.loss:.3g}")
        if others:
            self.result.held_out_shared = self.evaluate(max(others, key=lambda context: context[1])[0])
        return self.result

    @torch.no_grad()
    def evaluate(self, context: Context = "own") -> Score | None:
        """Score on the held-out examples; None if there are none."""
        tally = Tally()
        for examples, logits, labels in self._forward([(example, context) for example in self._held]):
            tally.add(examples, logits, labels)
        return tally.score()

    def save_state(self, path: Path) -> None:
        """Write all that a resumed run needs; replaces the file in one go."""
        temporary = path.with_suffix(".part")
        state = {
            **self._made_of,
            "weights": {name: weight.detach() for name, weight in self._weights.items()},
            "optimizer": self._optimizer.state_dict(),
            "result": json.dumps(self.result.to_json()),
        }
        torch.save(state, temporary)
        os.replace(temporary, path)

    def load_state(self, path: Path) -> None:
        """Continue a saved run; it ends with the same weights as one that never stopped.

        Raises UsageError if what the saved run was made of differs, by default settings or examples.
        """
        state: dict[str, Any] = torch.load(path, weights_only=True)
        check_identity(path, state, self._made_of)
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(state["weights"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self.result = TrainResult.from_json(json.loads(state["result"]))
        self._order = shuffled_steps(len(self._train), self._settings.sequences_per_step, self._settings.seed)
        for _ in range(self.result.steps):
            next(self._order)

    def _progress(self) -> float:
        done = self.result.steps / self.total_steps
        if self._settings.max_minutes is None:
            return done
        return max(done, self.result.seconds / (60 * self._settings.max_minutes))

    def _step(self, progress: float) -> StepFacts:
        started = time.monotonic()
        result, settings = self.result, self._settings
        examples = [self._train[index] for index in next(self._order)]
        targets = sum(len(example.targets) for example in examples)
        rate = settings.rate(result.steps, progress)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss = 0.0
        for _, logits, labels in self._forward([(example, self._draw(example)) for example in examples]):
            part_loss = F.cross_entropy(logits, labels, reduction="sum") / targets
            part_loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            loss += float(part_loss.detach())
        norm = float(nn.utils.clip_grad_norm_(self._weights.values(), settings.clip_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise self._diverged(result.steps + 1, f"loss {loss:.3g}, gradient norm {norm:.3g}")
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        seconds = time.monotonic() - started
        tokens = sum(len(example.token_ids) for example in examples)
        result.steps += 1
        result.tokens += tokens
        result.targets += targets
        result.seconds += seconds
        result.losses.append(loss)
        return StepFacts(result.steps, self.total_steps, loss, rate, norm, tokens, seconds, self._progress())

    def _diverged(self, step: int, what: str) -> UsageError:
        rate = self._settings.learning_rate
        return UsageError(
            f"training {self._role or 'the adapter'} diverged at step {step} of {self.total_steps}: "
            f"{what}; nothing was saved. Train anew with a lower learning rate than {rate:g}, as "
            f"--lr {rate / 4:g}"
        )

    def _draw(self, example: Example) -> Context:
        """The context of an example in this step; depends on nothing else, so that a resumed run draws the same."""
        contexts, weights = zip(*self._settings.contexts, strict=True)
        rng = random.Random(f"{self._settings.seed}:{self.result.steps}:{example.id}")
        drawn: Context = rng.choices(contexts, weights)[0]
        return drawn

    def _forward(
        self, drawn: Sequence[tuple[Example, Context]]
    ) -> Iterator[tuple[Sequence[Example], torch.Tensor, torch.Tensor]]:
        """Examples with the logits and labels of all their targets, in parts that fit the token budget."""
        plain = [example for example, context in drawn if context == "own"]
        for part in split_by_tokens(plain, self._settings.max_batch_tokens):
            batch = collate(part)
            logits = self._learner.logits(batch.token_ids, batch.rows)
            yield part, logits, batch.labels.to(logits.device)
        for example, context in drawn:
            if context != "own":
                token_ids, targets = torch.tensor(example.token_ids), torch.tensor(example.targets)
                own, since = torch.tensor(example.own_rows), torch.tensor(example.since)
                logits = self._learner.shared_logits(token_ids, own, targets - 1, context, since)
                yield [example], logits, token_ids[targets].to(logits.device)


def identity(examples: Sequence[Example], settings: TrainSettings) -> dict[str, str]:
    """What a saved run must have in common with the one that goes on with it."""
    digest = hashlib.sha256()
    for example in examples:
        decides = (example.id, example.question_id, example.token_ids, example.fields, example.own_rows, example.since)
        digest.update(f"{decides}\n".encode())
    return {"settings": json.dumps(asdict(settings), sort_keys=True), "data": digest.hexdigest()}


def check_identity(path: Path, saved: Mapping[str, Any], ours: Mapping[str, str]) -> None:
    """Raise UsageError where a saved run in `path` is not of this one."""
    for what, now in ours.items():
        if saved.get(what) != now:
            raise UsageError(f"{path} was written with other {what}; train anew, without --resume")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
