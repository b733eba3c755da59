"""Study (d): routekv's boundary sweep on single-turn QA: `python -m benchmarks.studies.boundary --data DIR`.

Two specialists that differ in their training seed learn to answer from contexts of `train_tokens`, adapted all the
way (native). QA only: GSM8K's text, routekv's other task, is not at hand.
"""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from agentrt.builtin import configs_dir
from agentrt.config.strict import PositiveFloat, PositiveInt, Text
from agentrt.engine import Engine
from agentrt.errors import DataError, UsageError
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.load import load_model
from agentrt.model.tokenizer import Tokenizer
from agentrt.model.trainable import LoraSettings, TrainableAdapter
from agentrt.questions.datasets import load_questions
from agentrt.schemes.make import make_scheme
from agentrt.training.examples import Example, TaughtField
from agentrt.training.publish import published
from agentrt.training.settings import TrainSettings
from agentrt.training.trainer import Trainer
from agentrt_tools.corpus import open_corpus
from benchmarks.studies.harness import Study, StudyConfig, main
from benchmarks.studies.passages import Prompt, all_titles, make_prompt
from benchmarks.studies.single_turn import CONDITIONS, Answer, answers, boundary, limits, summarise, two_branches

MINI: Final = configs_dir() / "mini"

MADE_OF: Final = "made_of.json"
"""Beside a specialist's adapter: what it was trained with."""

TRAINED_BY: Final = {"train_questions", "corpus", "train_limit", "train_tokens", "passes", "lr", "rank", "targets"}
"""Settings that a specialist's adapter depends on."""


class BoundaryConfig(StudyConfig):
    """`contexts`: tokens of a prompt. `budgets`: most tokens of an answer. Files are relative to --data; None: mini.
    `questions`: of each context, in its order. `targets`: projections as peft names them."""

    benchmark: Text = "mini"
    train_questions: Text | None = None
    eval_questions: Text | None = None
    corpus: Text | None = None
    contexts: tuple[PositiveInt, ...] = Field(min_length=1)
    budgets: tuple[PositiveInt, ...] = Field(min_length=1)
    questions: tuple[PositiveInt, ...] = Field(min_length=1)
    train_limit: PositiveInt | None = None
    train_tokens: PositiveInt
    train_seeds: tuple[int, ...] = (0, 1)
    passes: PositiveFloat = 2.0
    lr: PositiveFloat = 1.2e-3
    rank: PositiveInt = 16
    targets: tuple[Text, ...] = ("q_proj", "v_proj")


class Prompts:
    """Prompts of one length from the study's files; questions whose pages do not fit are counted, not used."""

    def __init__(self, study: Study[BoundaryConfig], tokenizer: Tokenizer) -> None:
        self._study, self._tokenizer = study, tokenizer
        config = study.config
        file = study.path(config.corpus) if config.corpus else MINI / "articles.jsonl"
        self._corpus, self._titles = open_corpus(file), all_titles(file)

    def make(self, questions: str | None, split: str, length: int, limit: int | None) -> tuple[list[Prompt], int]:
        """At most `limit` prompts, and how many questions before the last of them did not fit."""
        file = self._study.path(questions) if questions else None
        made: list[Prompt] = []
        skipped = 0
        for question in load_questions(self._study.config.benchmark, file, split if file is None else None):
            if len(made) == limit:
                break
            try:
                made.append(make_prompt(question, self._corpus, self._titles, self._tokenizer, length))
            except DataError:
                skipped += 1
        return made, skipped


def specialist(study: Study[BoundaryConfig], backbone: Backbone, prompts: Prompts, seed: int) -> Path:
    """The folder of the adapter trained with this seed; trained where it is not there yet.

    Raises UsageError where the one that is there was trained otherwise.
    """
    config, folder, base = study.config, study.work / f"seed{seed}", study.load_team().base
    made_of = {**config.model_dump(mode="json", include=TRAINED_BY), "backbone": backbone.content_hash, "seed": seed}
    note = folder / MADE_OF
    if note.is_file():
        if json.loads(note.read_text(encoding="utf-8")) != made_of:
            raise UsageError(f"{folder}: its adapter was trained under another config; name another --work")
        return folder
    assert backbone.tokenizer is not None, "loaded by name"
    made, _ = prompts.make(config.train_questions, "train", config.train_tokens, config.train_limit)
    examples = [learnt(prompt, backbone.tokenizer) for prompt in made]
    loaded = load_model(base.model, dtype=base.dtype)
    lora = LoraSettings(config.rank, 2 * config.rank, config.targets)
    learner = TrainableAdapter(loaded.model, loaded.name, lora, seed)
    settings = TrainSettings(passes=config.passes, learning_rate=config.lr, seed=seed, held_out=0.0)
    Trainer(learner, examples, settings).run(lambda facts: print(f"seed {seed}, step {facts.step}: {facts.loss:.3f}"))
    with published(folder) as draft:
        learner.save(draft)
        (draft / MADE_OF).write_text(json.dumps(made_of, indent=1) + "\n", encoding="utf-8")
    return folder


def learnt(prompt: Prompt, tokenizer: Tokenizer) -> Example:
    """The prompt with its gold answer and a line's end, which are the targets."""
    ids, said = prompt.token_ids, tokenizer.encode(f" {prompt.question.answer}\n")
    end = len(ids) + len(said)
    answer = TaughtField("answer", len(ids), end)
    return Example(prompt.question.id, prompt.question.id, (*ids, *said), (answer,), tuple(range(end - 1)))


def sweep(
    config: BoundaryConfig, backbone: Backbone, adapters: AdapterSet, prompts: Sequence[Prompt], length: int
) -> dict[str, Any]:
    """By condition, specialist and budget; then the memory of two branches."""
    found: dict[tuple[str, str, int], list[Answer]] = {}
    for name, condition in CONDITIONS.items():
        speakers = adapters.names if condition.adapted else [""]
        scheme, setting = make_scheme(condition.scheme), limits(length, config.budgets)
        with Engine(backbone, adapters, scheme, tokenizer=backbone.tokenizer, config=setting) as engine:
            for prompt, speaker in product(prompts, speakers):
                end = boundary(prompt, condition.boundary)
                for budget, each in answers(engine, speaker, prompt, end, config.budgets).items():
                    found.setdefault((name, speaker, budget), []).append(each)
    rows = {
        f"{name}, {speaker or 'adapters off'}, {budget} tokens": summarise(said, found.get(("native", speaker, budget)))
        for (name, speaker, budget), said in found.items()
    }
    memory = {}
    for name in ("native", "question", "full"):
        condition = CONDITIONS[name]
        scheme, setting = make_scheme(condition.scheme), limits(length, config.budgets)
        with Engine(backbone, adapters, scheme, tokenizer=backbone.tokenizer, config=setting) as engine:
            memory[name] = two_branches(engine, adapters.names, prompts[0], boundary(prompts[0], condition.boundary))
    return {"conditions": rows, "two_branch_memory": memory}


def run(study: Study[BoundaryConfig]) -> None:
    config, base = study.config, study.load_team().base
    backbone = Backbone.load(base.model, dtype=base.dtype)
    assert backbone.tokenizer is not None, "loaded by name"
    prompts = Prompts(study, backbone.tokenizer)
    folders = {f"seed{seed}": specialist(study, backbone, prompts, seed) for seed in config.train_seeds}
    adapters = backbone.load_adapters(folders)

    def at(length: int, limit: int) -> dict[str, Any]:
        if length + max(config.budgets) > backbone.max_positions:
            return {"left_out": f"the backbone has {backbone.max_positions} positions"}
        made, skipped = prompts.make(config.eval_questions, "eval", length, limit)
        if not made:
            return {"left_out": "no question's supporting pages fit", "skipped": skipped}
        return {"n": len(made), "skipped": skipped, **sweep(config, backbone, adapters, made, length)}

    for length, limit in zip(config.contexts, config.questions, strict=True):
        study.measure(f"{length} tokens", at, length, limit)


def start(argv: Sequence[str] | None = None) -> None:
    main("boundary", BoundaryConfig, run, argv, __doc__)


if __name__ == "__main__":
    start()
