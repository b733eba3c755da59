"""From questions with a known way to the answer to trajectories, by the runtime itself, a teacher in the model's place.

The episode runs as it would be served: same graph, tools, clipping, constraints and tokens; only the words come
from a `Teacher`. So training text cannot differ from what the roles meet later.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from agentrt.config.flow import CHOOSES, Emits
from agentrt.config.team import Team
from agentrt.errors import ConfigError, UsageError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.ports import Tokenizer
from agentrt.testing import ScriptedEngine, ScriptError
from agentrt.training.examples import Recorded
from agentrt.training.lesson_policy import LessonPolicy
from agentrt.training.policy import GoldPolicy
from agentrt.training.record import FieldLimits, own_paths, record
from agentrt.training.sources import LessonQuestion, Skipped, TaughtQuestion
from agentrt.training.teacher import Detour, PolicyStuckError, Senses, Teacher
from agentrt_tools.corpus import OfflineCorpus, open_corpus

_DETOURS: Final[tuple[tuple[Detour, float], ...]] = (("none", 0.4), ("middle", 0.2), ("last", 0.2), ("wrong", 0.2))
"""Shares: without pages that do not help, a model quotes whatever page it read last; without wrong answers, reflect
knows one verdict."""


class Derived(NamedTuple):
    """One question's trajectory, or why there is none."""

    recorded: Recorded | None
    skipped: Skipped | None


def derive(
    team: Team,
    tokenizer: Tokenizer,
    questions: Iterable[TaughtQuestion],
    corpus: Path,
    *,
    variants: int = 1,
    seed: int = 0,
) -> Iterator[Derived]:
    """Trajectories of `questions`, up to `variants` of each, in their order; deterministic in `seed`.

    After a wrong answer plan tries again where the team's flow leads back to it (see `agentrt.training.retry`).
    Raises UsageError if the team is not one that teachers know how to play: it has the actions Search,
    Retrieve and Finish, and begins with a thought.
    """
    _check(team)
    school = _School(team, tokenizer, open_corpus(corpus), seed)
    with Runtime(team, engine=school.engine, corpus=corpus) as runtime:
        for question in questions:
            for variant, detour in enumerate(_detours(question, variants, seed)):
                yield school.play(runtime, question, detour, variant)


class _School:
    """Answers the scripted engine with the teacher of the episode that is running."""

    def __init__(self, team: Team, tokenizer: Tokenizer, corpus: OfflineCorpus, seed: int) -> None:
        self._team = team
        self._corpus = corpus
        self._seed = seed
        nodes = team.flow.role_nodes().values()
        self._judges = {node.role for node in nodes if node.emits == "verdict"}
        self._planners = {node.role for node in nodes if node.emits in CHOOSES}
        self._limits = FieldLimits(team)
        self._writer = ""
        self._paths = own_paths(team)
        self._teacher: Teacher | None = None
        self.engine = ScriptedEngine(
            self._write, tokenizer=tokenizer, dialect=team.dialect, adapter_names=tuple(self._paths)
        )

    def play(self, runtime: Runtime, question: TaughtQuestion, detour: Detour, variant: int) -> Derived:
        self._teacher = teacher = self._teacher_of(question, detour, self._seed + variant)
        self.engine.sessions.clear()
        name = f"{question.id}/{variant}-{detour}"
        try:
            result = runtime.run(question.question, adapters=self._paths)
        except PolicyStuckError as error:
            return Derived(None, Skipped(name, str(error), question.place))
        except ScriptError as error:
            reason = f"a field of its teacher is not what the team allows: {error}"
            return Derived(None, Skipped(name, reason, question.place))
        if result.status != "finished" or result.error or result.parse_failures:
            reason = result.error or f"its episode ended as {result.status}"
            return Derived(None, Skipped(name, reason, question.place))
        return Derived(record(self._team, result, teacher.taught, name), None)

    def _teacher_of(self, question: TaughtQuestion, detour: Detour, seed: int) -> Teacher:
        senses = Senses(self._corpus.mentions, self._fits)
        if isinstance(question, LessonQuestion):
            return LessonPolicy(question, detour, senses, seed=seed)
        return GoldPolicy(question, detour, senses, seed=seed)

    def _write(self, role: str, emits: Emits, so_far: str) -> str:
        assert self._teacher is not None
        self._writer = role
        judging = role in self._judges and (role not in self._planners or self._teacher.answer_waits)
        return self._teacher.write(emits, self._observations(), judging=judging)

    def _observations(self) -> list[str]:
        """All observations of the running episode, as the model reads them."""
        trajectory, renderer = self.engine.sessions[-1].trajectory, self.engine.renderer
        marker = f"{renderer.dialect.observation}{renderer.dialect.lead}"
        texts = (
            renderer.tokenizer.decode(trajectory.token_ids[span.start : span.end])
            for span in trajectory.spans
            if span.kind == "observation"
        )
        return [text.partition(marker)[2].removesuffix(renderer.dialect.end) for text in texts]

    def _fits(self, emits: Emits, text: str) -> bool:
        return len(self.engine.renderer.field(emits, text)) <= self._limits.of(self._writer, emits)


def _detours(question: TaughtQuestion, variants: int, seed: int) -> Sequence[Detour]:
    """`variants` different detours of a question, drawn by their shares."""
    rng = random.Random(f"{seed}:{question.id}")
    left = dict(_DETOURS)
    drawn: list[Detour] = []
    for _ in range(min(variants, len(left))):
        detour = rng.choices(list(left), weights=list(left.values()))[0]
        del left[detour]
        drawn.append(detour)
    return drawn


def _check(team: Team) -> None:
    if lacking := {"Search", "Retrieve", "Finish"} - set(team.flow.actions()):
        raise UsageError(
            f"{team.source}: --derive teaches teams that search and read, and this one offers no "
            f"{', '.join(sorted(lacking))}; train it from recorded trajectories instead"
        )
    begins = team.flow.role_nodes()[team.flow.start].emits
    if begins != "thought":
        message = f"--derive teaches teams that begin with a thought, and this one begins with {begins}; train it from "
        raise ConfigError([team.problem(("flow", "start"), f"{message}recorded trajectories (--trajectories) instead")])
