"""`agentrt compare`: finished evaluations, paired by question."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agentrt.cli.options import Json, Out, Quiet, Seed, Verbose, resolve_settings
from agentrt.cli.output import Output

if TYPE_CHECKING:
    from agentrt.evaluate.compare.pairs import Difference
    from agentrt.evaluate.compare.result import Comparison, Pairing

_COLUMNS: Final = ("measure", "first", "other", "difference", "95 %", "")
_FLIPS_SHOWN: Final = 20


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Ids of evaluations, or their folders.")],
    common: Annotated[
        bool,
        typer.Option("--common", help="Compare the episodes that all runs have; else one that lacks any is refused."),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="DIR", help="Draw compare.png (score against latency) there.")
    ] = None,
    seed: Seed = None,
    out_dir: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare evaluations with the first one: the same questions, paired, repeats of a question averaged.

    Differences (other - first) in scores, tokens, steps and model latency have paired bootstrap 95 % intervals over
    questions (10,000 resamples); a star marks those that exclude zero. Questions that flipped are listed, all of them
    with -v or --json. Answers are scored anew, by today's rules.
    """
    from agentrt.evaluate.compare.result import compare as hold_together
    from agentrt.evaluate.compare.result import draw, to_record
    from agentrt.evaluate.compare.runs import load_runs
    from agentrt.evaluate.figures import require_matplotlib

    if plot is not None:
        require_matplotlib()
    settings = resolve_settings({"out": out_dir, "seed": seed}, []).settings
    found = hold_together(load_runs(runs, Path(settings.out)), common=common, seed=settings.seed)
    out, record = Output(as_json=as_json, quiet=quiet), to_record(found)
    out.record(record)
    _show(out, found, every_flip=verbose)
    if plot is not None:
        out.say(f"drew {draw(record, plot / 'compare.png')}")


def _show(out: Output, found: "Comparison", *, every_flip: bool) -> None:
    first, questions = found.runs[0], len({key.id for key in found.keys})
    out.result(f"{questions} questions, {len(found.keys)} episodes each; first: {first.label}", style="bold")
    for name, values in found.differing.items():
        out.result(f"note: the runs differ in {name}: {', '.join(map(str, values))}")
    for pairing in found.pairings:
        out.result(f"\n{pairing.run.label} against {first.label}", style="bold")
        rows = [(name, *_spell(each)) for name, each in pairing.differences.items()]
        out.table(_COLUMNS, rows, right=_COLUMNS[1:-1])
        _show_flips(out, pairing, None if every_flip else _FLIPS_SHOWN)


def _show_flips(out: Output, pairing: "Pairing", limit: int | None) -> None:
    gained = sum(flip.other > flip.reference for flip in pairing.flips)
    out.result(f"{len(pairing.flips)} questions flipped: {gained} gained, {len(pairing.flips) - gained} lost")
    for flip in pairing.flips[:limit]:
        sign = "+" if flip.other > flip.reference else "-"
        out.result(f"  {sign} {flip.id} ({flip.gold}): {flip.reference_answer!r} -> {flip.other_answer!r}")
    if limit is not None and len(pairing.flips) > limit:
        out.result(f"  and {len(pairing.flips) - limit} more: -v lists them")


def _spell(each: "Difference") -> tuple[str, ...]:
    interval = "-" if each.ci95 is None else f"{each.ci95.low:+.3f} to {each.ci95.high:+.3f}"
    return (
        f"{each.reference:.3f}",
        f"{each.other:.3f}",
        f"{each.difference:+.3f}",
        interval,
        "*" if each.told_apart else "",
    )
