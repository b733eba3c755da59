"""`agentrt train`: LoRA adapters for a team's roles, from trajectories that the runtime itself renders."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrt.cli.options import Json, Offline, Quiet, SchemeName, Seed, Sets, TeamName, Verbose, resolve_settings
from agentrt.cli.output import Output

if TYPE_CHECKING:
    from agentrt.config.team import Team
    from agentrt.training.job import Source, ToldFile


class Targets(StrEnum):
    """Which attention projections an adapter has."""

    QV = "QV"
    QKVO = "QKVO"


class Contexts(StrEnum):
    """See `agentrt.training.plan.Contexts`."""

    OWN = "own"
    NEUTRAL = "neutral"
    SHARED = "shared"


def train(
    derive: Annotated[
        bool, typer.Option("--derive", help="Build trajectories from questions with a known way to the answer first.")
    ] = False,
    questions: Annotated[
        list[Path],
        typer.Option(
            help="Questions with supporting facts, or with options and a solution, JSONL; may be given again. "
            "Default: those that the team names, else the mini benchmark's."
        ),
    ] = [],  # noqa: B006 - typer reads the default and copies it
    corpus: Annotated[
        list[Path], typer.Option(help="The articles of each --questions, in the same order; one serves all.")
    ] = [],  # noqa: B006 - as above
    trajectories: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Recorded episodes to learn from, JSONL with turns; may be given again."),
    ] = [],  # noqa: B006 - as above
    pairs: Annotated[
        list[str],
        typer.Option(metavar="ROLE=FILE", help="A role's {input, output} rows, JSONL; may be given again."),
    ] = [],  # noqa: B006 - as above
    judged: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR",
            help="An evaluation whose episodes the judging role learns from, with the verdicts that scores give; "
            "may be given again.",
        ),
    ] = [],  # noqa: B006 - as above
    licence: Annotated[str | None, typer.Option(metavar="TEXT", help="The data's licence, for the cards.")] = None,
    roles: Annotated[
        list[str], typer.Option("--role", help="Train this role only; may be given again. Default: all.")
    ] = [],  # noqa: B006 - as above
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where data, logs and checkpoints go.")] = Path("runs/train"),
    adapters: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the adapters go, a folder a role. Default: OUT/adapters.")
    ] = None,
    variants: Annotated[int, typer.Option(min=1, max=4, help="Trajectories derived from each question.")] = 2,
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first N questions or episodes of a file.")] = None,
    passes: Annotated[float, typer.Option(help="Times every trajectory is seen; may be a fraction.")] = 1.0,
    learning_rate: Annotated[float, typer.Option("--lr", help="Peak of the cosine.")] = 1.2e-3,
    warmup: Annotated[int, typer.Option(min=0, help="Steps until the peak.")] = 20,
    batch: Annotated[int, typer.Option(min=1, help="Sequences a step; gradients of its parts add up.")] = 2,
    rank: Annotated[int, typer.Option(min=1, help="r of the LoRA; alpha is twice that.")] = 8,
    targets: Annotated[Targets, typer.Option(help="Projections that are adapted, by their letters.")] = Targets.QV,
    shared_a: Annotated[
        bool, typer.Option("--shared-a", help="Train B alone: A is the seed's, the same in all roles (base_lr_shared).")
    ] = False,
    activated: Annotated[
        bool, typer.Option("--activated", help="Activated LoRA (alora), from the role's instruction on.")
    ] = False,
    contexts: Annotated[
        Contexts | None,
        typer.Option(help="Who processed what a role reads: itself; also adapters off; also the first role (default)."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Bring training to its end within this time, per role.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Roles trained at once. Default: as many as cores.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads a role. Default: the cores, shared.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on: finished roles are kept, others start at their checkpoint.")
    ] = False,
    derive_only: Annotated[
        bool, typer.Option("--derive-only", help="Stop after the trajectories are written.")
    ] = False,
    start: Annotated[
        Path | None,
        typer.Option("--start", metavar="DIR", help="Train on from the adapters in DIR/<role>, not from new ones."),
    ] = None,
    team: TeamName = None,
    scheme: SchemeName = None,
    seed: Seed = None,
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - as above
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train one LoRA adapter per role: loss on the role's own fields only, tokens as they are served.

    Roles are trained at once, each in a process of its own. The role that starts the flow comes first, since the others
    learn to read contexts that it has processed, as they will under a sharing scheme; with --contexts own or neutral
    nobody waits, and with --targets QKVO, or where that role has no adapter, contexts are their own.
    """
    from agentrt.cli.train_view import show_training
    from agentrt.errors import UsageError
    from agentrt.model.fetch import locate
    from agentrt.model.hashing import hash_folder
    from agentrt.model.progress import progress_bar
    from agentrt.model.tokenizer import Tokenizer
    from agentrt.model.trainable import LoraSettings
    from agentrt.training.activated import invocations
    from agentrt.training.job import check_data, derive_data
    from agentrt.training.parallel import processors
    from agentrt.training.plan import check_fit, choose_contexts, chosen_roles, first_role, make_jobs
    from agentrt.training.retry import with_retry
    from agentrt.training.role import RoleJob
    from agentrt.training.settings import TrainSettings
    from agentrt.training.team_files import licence_of

    output = Output(as_json=as_json, quiet=quiet)
    resolved = resolve_settings({"team": team, "scheme": scheme, "seed": seed, "offline": offline}, sets)
    chosen, crew = resolved.settings, with_retry(resolved.load_team(need_adapters=False))
    wanted, place = chosen_roles(crew, roles) if roles or not derive_only else [], adapters or out / "adapters"
    if place.resolve() == out.resolve():
        raise UsageError(f"--adapters {place}: logs and checkpoints go there; give the adapters a folder of their own")
    if start is not None and start.resolve() == place.resolve():
        raise UsageError(f"--start {start}: the trained adapters would replace those; give them another --adapters")
    letters = tuple(f"{letter.lower()}_proj" for letter in targets.value)
    lora = LoraSettings(rank=rank, alpha=2 * rank, targets=letters, shared_a=shared_a)
    mix = choose_contexts(contexts.value if contexts else None, lora, activated=activated)
    settings = TrainSettings(
        passes=passes,
        learning_rate=learning_rate,
        warmup_steps=warmup,
        sequences_per_step=batch,
        seed=chosen.seed,
        max_minutes=minutes,
    )
    check_fit(crew, shared_a=shared_a, activated=activated)
    told = _told(trajectories, pairs, judged, crew)
    derives = derive or (derive_only and not told)
    if (questions or corpus) and not derives:
        raise UsageError("--questions and --corpus are what trajectories are derived from: add --derive")
    sources = _sources(questions, corpus, crew) if derives else []
    builds = derive or derive_only or bool(told)
    if not builds:
        check_data(out)
    with progress_bar(quiet=quiet) as bar:
        folder = locate(crew.base.model, offline=chosen.offline, report=bar).folder
    tokenizer = Tokenizer.from_folder(folder)
    invoked = invocations(crew, tokenizer, wanted) if activated else {}
    if builds:
        with progress_bar(quiet=quiet) as bar:
            facts = derive_data(
                crew,
                tokenizer,
                sources,
                out,
                told=told,
                variants=variants,
                seed=chosen.seed,
                limit=limit,
                licence=licence or licence_of([*sources, *told]),
                backbone=hash_folder(folder),
                reuse=resume,
                report=bar,
            )
        _tell_data(output, facts, out)
    if derive_only:
        return
    cores = processors()
    at_once = min(jobs or cores, len(wanted))
    template = RoleJob(
        role="",
        model=crew.base.model,
        out=out,
        adapters=place,
        lora=lora,
        settings=settings,
        dtype=crew.base.dtype,
        device=chosen.device,
        offline=chosen.offline,
        start=start,
        resume=resume,
        threads=threads or chosen.threads,
    )
    plan = make_jobs(template, wanted, first_role(crew), mix, invoked, at_once=at_once, cores=cores)
    show_training(plan, at_once, output)


def _tell_data(output: Output, facts: dict[str, Any], out: Path) -> None:
    output.record({"event": "data_derived", **facts})
    made_of = [f"{facts[what]} {what}" for what in ("questions", "episodes") if facts[what]]
    output.say(f"{facts['trajectories']} trajectories of {' and '.join(made_of)} in {out / 'data'}")
    for reason, count in facts["skipped"].items():
        output.say(f"  skipped {count}: {reason}")
    if facts["skipped"]:
        output.say(f"  each with its file and line in {out / 'data' / 'skipped.jsonl'}")


def _told(trajectories: list[Path], pairs: list[str], judged: list[Path], crew: "Team") -> "list[ToldFile]":
    from agentrt.errors import UsageError
    from agentrt.training.job import ToldFile
    from agentrt.training.judged_file import EPISODES

    files = [ToldFile(path) for path in trajectories]
    for pair in pairs:
        role, equals, name = pair.partition("=")
        if not equals or role not in crew.roles:
            raise UsageError(f"--pairs {pair}: write ROLE=FILE, with one of the roles {', '.join(crew.roles)}")
        files.append(ToldFile(Path(name), role))
    for folder in judged:
        if not (folder / EPISODES).is_file():
            raise UsageError(f"--judged {folder} is no evaluation: it has no {EPISODES}")
        files.append(ToldFile(folder / EPISODES, judged=True))
    for file in files:
        if not file.path.is_file():
            raise UsageError(f"{file.path} is not a file")
    return files


def _sources(questions: list[Path], corpus: list[Path], crew: "Team") -> "list[Source]":
    from agentrt.errors import UsageError
    from agentrt.training.job import Source
    from agentrt.training.team_files import files_of

    if corpus and not questions:
        raise UsageError(f"--corpus {corpus[0]}: it holds the articles of --questions; name those too, or neither")
    if not questions:
        return files_of(crew)
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
