"""A training run's folder: derived data, a log and a checkpoint for each role, and the adapters themselves.

OUT/data/trajectories.jsonl  skipped.jsonl  facts.json
OUT/<role>/log.jsonl  checkpoint.pt
OUT/adapters/<role>/     or wherever the caller wants the adapters
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentrt.config.team import Team
from agentrt.errors import DataError, UsageError
from agentrt.model.load import LoadedModel
from agentrt.model.trainable import WEIGHTS_FILE, LoraSettings, TrainableAdapter
from agentrt.runtime.ports import Tokenizer
from agentrt.training.card import data_file, read_card, skip_counts, write_card
from agentrt.training.derive import derive
from agentrt.training.examples import Recorded, read_recorded, role_example, write_recorded
from agentrt.training.settings import TrainSettings
from agentrt.training.sources import Skipped, read_questions
from agentrt.training.trainer import StepFacts, Trainer, TrainResult
from agentrt_tools.corpus import open_corpus

TRAJECTORIES: Final = "trajectories.jsonl"
SKIPPED: Final = "skipped.jsonl"
FACTS: Final = "facts.json"


class Source(NamedTuple):
    """A file of questions and the corpus that holds their pages."""

    questions: Path
    corpus: Path


def derive_data(
    team: Team,
    tokenizer: Tokenizer,
    sources: Sequence[Source],
    out: Path,
    *,
    split: str | None = "train",
    variants: int = 1,
    seed: int = 0,
    limit: int | None = None,
    report: Callable[[str, float, float], None] = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Derive trajectories from all `sources` into `out/data`; returns the facts that cards quote.

    `limit` takes the first questions of each source only. Raises DataError if no trajectory comes out.
    """
    recorded: list[Recorded] = []
    skipped: list[Skipped] = []
    num_questions = 0
    for source in sources:
        questions, unusable = read_questions(source.questions, open_corpus(source.corpus), split=split)
        questions = questions[:limit]
        num_questions += len(questions) + len(unusable)
        skipped += unusable
        episodes = derive(team, tokenizer, questions, source.corpus, variants=variants, seed=seed)
        for done, one in enumerate(episodes, start=1):
            if one.recorded is not None:
                recorded.append(one.recorded)
            if one.skipped is not None:
                skipped.append(one.skipped)
            report(f"deriving from {source.questions.name}", done, len(questions) * variants)
    if not recorded:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in skip_counts(skipped).items())
        raise DataError(f"no question gave a trajectory: {reasons or 'the files hold no question of the split'}")
    folder = out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    write_recorded(folder / TRAJECTORIES, recorded)
    (folder / SKIPPED).write_text(
        "".join(json.dumps(one._asdict(), ensure_ascii=False) + "\n" for one in skipped), encoding="utf-8"
    )
    files = dict.fromkeys(path for source in sources for path in source)
    facts = {
        "files": [data_file(path)._asdict() for path in files],
        "questions": num_questions,
        "trajectories": len(recorded),
        "trajectory_tokens": sum(len(one.token_ids) for one in recorded),
        "skipped": skip_counts(skipped),
        "seed": seed,
        "variants": variants,
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return facts


def load_data(out: Path) -> tuple[list[Recorded], dict[str, Any]]:
    """What `derive_data` wrote. Raises UsageError if it is not there."""
    folder = out / "data"
    if not (folder / TRAJECTORIES).is_file() or not (folder / FACTS).is_file():
        raise UsageError(f"{folder} holds no derived trajectories; run train with --derive first")
    return list(read_recorded(folder / TRAJECTORIES)), json.loads((folder / FACTS).read_text(encoding="utf-8"))


def train_role(
    role: str,
    recorded: Sequence[Recorded],
    data: dict[str, Any],
    loaded: LoadedModel,
    *,
    lora: LoraSettings,
    settings: TrainSettings,
    out: Path,
    adapter_folder: Path,
    other: Path | None = None,
    start: Path | None = None,
    resume: bool = False,
    report: Callable[[StepFacts], None] = lambda facts: None,
) -> TrainResult:
    """Train one role and save it in `adapter_folder`, which holds a usable adapter from the first checkpoint on.

    `other` is the adapter of the role whose contexts `settings.contexts` speaks of; `start` is one to train on from.
    `loaded.model` is changed in place and of no further use. Raises DataError if the role wrote nothing in the data.
    """
    examples = [example for one in recorded if (example := role_example(one, role)) is not None]
    if not examples:
        raise DataError(f"no trajectory holds a field of the role {role!r}")
    learner = TrainableAdapter(loaded.model, loaded.name, lora, settings.seed, other=other, start=start)
    trainer = Trainer(learner, examples, settings)
    folder = out / role
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "checkpoint.pt"
    if resume and state.is_file():
        trainer.load_state(state)
    facts = {**data, "examples": trainer.num_train, "held_out_examples": trainer.num_held_out}
    if other is not None:
        facts["other_adapter_sha256"] = data_file(other / WEIGHTS_FILE).sha256

    started_from = read_card(start) if start is not None else None

    def save(finished: bool) -> None:
        learner.save(adapter_folder)
        write_card(
            adapter_folder,
            role=role,
            base_model=loaded.name,
            adapter=asdict(lora),
            settings=settings,
            data=facts,
            result=trainer.result,
            finished=finished,
            started_from=started_from,
        )

    def checkpoint() -> None:
        trainer.save_state(state)
        save(finished=False)

    with (folder / "log.jsonl").open("a" if resume else "w", encoding="utf-8") as log:

        def step(facts: StepFacts) -> None:
            log.write(json.dumps({name: _short(value) for name, value in facts._asdict().items()}) + "\n")
            log.flush()
            report(facts)

        result = trainer.run(step, checkpoint=checkpoint)
    save(finished=True)
    if state.exists():
        os.remove(state)
    return result


def _short(value: float) -> float:
    return float(f"{value:.5g}") if isinstance(value, float) else value
