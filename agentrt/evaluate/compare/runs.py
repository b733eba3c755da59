"""Evaluations read back for a comparison, and the episodes that all of them have."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agentrt.errors import DataError, UsageError
from agentrt.evaluate.evaluation.folder import HEADER, read_rows
from agentrt.evaluate.evaluation.plan import Key
from agentrt.evaluate.evaluation.row import EpisodeRow

_SHOWN: Final = 3


@dataclass(frozen=True)
class EvalRun:
    """`label` is the scheme, with the id where two runs have the same; `identity` what the run evaluated."""

    id: str
    label: str
    identity: dict[str, Any]
    rows: dict[Key, EpisodeRow]

    @property
    def scheme(self) -> str:
        return str(self.identity.get("scheme", self.id))


def load_runs(names: Sequence[str], out: Path) -> list[EvalRun]:
    """Runs by folder, or by their id under `out`, scored anew by today's rules. A torn last line is left out.

    Raises UsageError for fewer than two runs, one that is named twice or is not there; DataError for a bad file.
    """
    if len(names) < 2:
        raise UsageError("name at least two evaluations: the first is what the others are compared with")
    runs = [_load(Path(name) if Path(name).is_dir() else out / name) for name in names]
    if twice := [run.id for index, run in enumerate(runs) if run.id in {other.id for other in runs[:index]}]:
        raise UsageError(f"evaluation {twice[0]} is named twice")
    schemes = [run.scheme for run in runs]
    return [
        replace(run, label=run.scheme if schemes.count(run.scheme) == 1 else f"{run.scheme} ({run.id})") for run in runs
    ]


def paired_keys(runs: Sequence[EvalRun], *, common: bool) -> list[Key]:
    """The question and repeat of every pair, in order; with `common` those that all runs have.

    Raises UsageError naming what a run lacks, or where nothing is in common; DataError for two questions of one id.
    """
    shared = set.intersection(*(set(run.rows) for run in runs))
    for run in runs[1:]:
        for key in sorted(shared):
            if run.rows[key].asked != runs[0].rows[key].asked:
                raise DataError(f"question {key.id} is not the same in {runs[0].id} and {run.id}: other data")
    if not common:
        _check_whole(runs)
    if not shared:
        raise UsageError(f"{' and '.join(run.id for run in runs)} have no question in common")
    return sorted(shared)


def _check_whole(runs: Sequence[EvalRun]) -> None:
    every = set.union(*(set(run.rows) for run in runs))
    for run in runs:
        missing = sorted(every - set(run.rows))
        if not missing:
            continue
        questions = {key.id for key in run.rows}
        lacking = sorted({key.id for key in missing} - questions)
        what = f"questions {_some(lacking)}" if lacking else f"repeats {_some([f'{k.id}#{k.repeat}' for k in missing])}"
        raise UsageError(
            f"{run.id} ({run.scheme}) lacks {what} that another has; finish it with `agentrt eval --resume {run.id}`, "
            "or compare what all have with --common"
        )


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _load(path: Path) -> EvalRun:
    try:
        identity = json.loads((path / HEADER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} is no evaluation: it has no {HEADER}") from None
    except ValueError as error:
        raise DataError(f"{path / HEADER}: not JSON ({error})") from error
    if not isinstance(identity, dict):
        raise DataError(f"{path / HEADER}: not a JSON object")
    rows = {row.key: row.rescore() for row in read_rows(path)}
    if not rows:
        raise UsageError(f"{path.name} has no finished episode yet")
    return EvalRun(path.resolve().name, "", identity, rows)
