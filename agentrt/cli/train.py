"""`agentrt train`: LoRA adapters for a team's roles, from trajectories that the runtime itself renders."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrt.cli.options import Json, Offline, Quiet, Seed, Sets, TeamName, Verbose, resolve_settings
from agentrt.cli.output import Output

if TYPE_CHECKING:
    from agentrt.training.job import Source


class Targets(StrEnum):
    """Which attention projections an adapter has."""

    QV = "QV"
    QKVO = "QKVO"


def train(
    derive: Annotated[
        bool, typer.Option("--derive", help="Build trajectories from questions with supporting facts first.")
    ] = False,
    questions: Annotated[
        list[Path],
        typer.Option(help="Questions with supporting facts, JSONL; may be given again. Default: the mini benchmark."),
    ] = [],  # noqa: B006 - typer reads the default and copies it
    corpus: Annotated[
        list[Path], typer.Option(help="The articles of each --questions, in the same order; one serves all.")
    ] = [],  # noqa: B006 - as above
    roles: Annotated[
        list[str], typer.Option("--role", help="Train this role only; may be given again. Default: all.")
    ] = [],  # noqa: B006 - as above
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where data, logs and checkpoints go.")] = Path("runs/train"),
    adapters: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the adapters go, a folder a role. Default: OUT/adapters.")
    ] = None,
    variants: Annotated[int, typer.Option(min=1, max=4, help="Trajectories derived from each question.")] = 2,
    limit: Annotated[int | None, typer.Option(min=1, help="Derive from the first N questions of each file.")] = None,
    passes: Annotated[float, typer.Option(help="Times every trajectory is seen; may be a fraction.")] = 1.0,
    learning_rate: Annotated[float, typer.Option("--lr", help="Peak of the cosine.")] = 1.2e-3,
    rank: Annotated[int, typer.Option(min=1, help="r of the LoRA; alpha is twice that.")] = 8,
    targets: Annotated[Targets, typer.Option(help="Projections that are adapted, by their letters.")] = Targets.QV,
    minutes: Annotated[float | None, typer.Option(help="Bring training to its end within this time, per role.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads. Default: torch's own choice.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")] = False,
    derive_only: Annotated[
        bool, typer.Option("--derive-only", help="Stop after the trajectories are written.")
    ] = False,
    start: Annotated[
        Path | None,
        typer.Option("--start", metavar="DIR", help="Train on from the adapters in DIR/<role>, not from new ones."),
    ] = None,
    team: TeamName = None,
    seed: Seed = None,
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - as above
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train one LoRA adapter per role: loss on the role's own fields only, tokens as they are served.

    The role that starts the flow is trained first. The others then learn to read contexts that it has processed, as
    they will under a sharing scheme; where it has no adapter yet, they learn on contexts of their own only,
    as all do with --targets QKVO.

    To use both cores of a small machine, derive once and run one process a role, each with --threads 1.
    """
    from dataclasses import replace

    from agentrt.cli.backbone import use_threads
    from agentrt.errors import UsageError
    from agentrt.model.fetch import locate
    from agentrt.model.load import load_model
    from agentrt.model.progress import progress_bar
    from agentrt.model.tokenizer import Tokenizer
    from agentrt.model.trainable import LoraSettings
    from agentrt.training.job import derive_data, load_data, train_role
    from agentrt.training.settings import OWN_CONTEXT, READER_CONTEXTS, SHARED_CONTEXTS, TrainSettings

    output = Output(as_json=as_json, quiet=quiet)
    resolved = resolve_settings({"team": team, "seed": seed, "offline": offline, "threads": threads}, sets)
    chosen, crew = resolved.settings, resolved.load_team(need_adapters=False)
    first = crew.flow.role_nodes()[crew.flow.start].role
    wanted = sorted(roles or crew.adapters(), key=lambda role: role != first)
    if unknown := [role for role in wanted if role not in crew.adapters()]:
        known = ", ".join(crew.adapters()) or "none"
        raise UsageError(f"--role: the team has no adapter for {', '.join(unknown)}; it has: {known}")
    settings = TrainSettings(passes=passes, learning_rate=learning_rate, seed=chosen.seed, max_minutes=minutes)
    place = adapters or out / "adapters"
    lora = LoraSettings(rank=rank, alpha=2 * rank, targets=tuple(f"{letter.lower()}_proj" for letter in targets.value))
    use_threads(chosen)

    if derive or derive_only:
        sources = _sources(questions, corpus)
        with progress_bar() as bar:
            folder = locate(crew.base.model, offline=chosen.offline, report=bar).folder
            facts = derive_data(
                crew,
                Tokenizer.from_folder(folder),
                sources,
                out,
                variants=variants,
                seed=chosen.seed,
                limit=limit,
                report=bar,
            )
        output.record({"event": "data_derived", **facts})
        output.say(f"{facts['trajectories']} trajectories of {facts['questions']} questions in {out / 'data'}")
        for reason, count in facts["skipped"].items():
            output.say(f"  skipped {count}: {reason}")
        if facts["skipped"]:
            output.say(f"  each with its file and line in {out / 'data' / 'skipped.jsonl'}")
    if derive_only:
        return
    recorded, data = load_data(out)
    for role in wanted:
        loaded = load_model(crew.base.model, dtype=crew.base.dtype, device=chosen.device, offline=chosen.offline)
        target, other = place / role, place / first if role != first and (place / first).is_dir() else None
        with _Watch(role, output) as watch:
            result = train_role(
                role,
                recorded,
                data,
                loaded,
                lora=lora,
                settings=replace(
                    settings,
                    contexts=OWN_CONTEXT
                    if targets is Targets.QKVO or not (other or role == first)
                    else SHARED_CONTEXTS
                    if other
                    else READER_CONTEXTS,
                ),
                out=out,
                adapter_folder=target,
                other=other,
                start=start / role if start else None,
                resume=resume,
                report=watch,
            )
        held = result.held_out
        output.record(
            {
                "event": "role_trained",
                "role": role,
                "steps": result.steps,
                "seconds": round(result.seconds, 1),
                "loss": result.last_loss,
                "held_out_loss": held.loss if held else None,
                "held_out_accuracy": held.accuracy if held else None,
                "adapter": str(target),
            }
        )
        score = f", held out {held.loss:.3f} ({held.accuracy:.1%} of tokens right)" if held else ""
        output.result(
            f"{role}: {result.steps} steps in {result.seconds / 60:.1f} min, "
            f"loss {result.first_loss:.3f} -> {result.last_loss:.3f}{score}; saved in {target}"
        )


def _sources(questions: list[Path], corpus: list[Path]) -> "list[Source]":
    from agentrt.builtin import configs_dir
    from agentrt.errors import UsageError
    from agentrt.training.job import Source

    if not questions:
        mini = configs_dir() / "mini"
        return [Source(mini / "questions.jsonl", mini / "articles.jsonl")]
    if len(corpus) not in (1, len(questions)):
        raise UsageError(
            f"{len(questions)} --questions and {len(corpus)} --corpus: give one --corpus, or one for each file"
        )
    for path in (*questions, *corpus):
        if not path.is_file():
            raise UsageError(f"{path} is not a file")
    return [
        Source(*pair) for pair in zip(questions, corpus * len(questions) if len(corpus) == 1 else corpus, strict=True)
    ]


class _Watch:
    """Shows training steps: a bar with the time left on a terminal, else a line now and then."""

    EVERY_S = 20.0

    def __init__(self, role: str, output: Output) -> None:
        self._role = role
        self._quiet = output.quiet
        self._last = 0.0
        self._spent = 0.0
        self._start: float | None = None
        self._loss: float | None = None
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "_Watch":
        import sys

        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._console = Console(file=sys.stderr, highlight=False)
        if self._console.is_terminal and not self._quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._role, total=1.0)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, facts: Any) -> None:
        import time

        self._loss = facts.loss if self._loss is None else 0.9 * self._loss + 0.1 * facts.loss
        if self._start is None:  # a resumed run starts in the middle
            self._start = facts.progress
        else:
            self._spent += facts.seconds
        done = facts.progress - self._start
        text = f"{self._role} step {facts.step}/{facts.total_steps} loss {self._loss:.3f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=facts.progress, description=text)
        elif not self._quiet and time.monotonic() - self._last >= self.EVERY_S:
            self._last = time.monotonic()
            left = f", about {self._spent / done * (1 - facts.progress) / 60:.0f} min left" if done else ""
            self._console.print(f"{text}{left}", soft_wrap=True)
