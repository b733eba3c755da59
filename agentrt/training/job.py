"""The data of a training run: trajectories derived from questions or read from files, and the facts that cards quote.

OUT/data/trajectories.jsonl  skipped.jsonl  facts.json
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentrt.config.team import Team
from agentrt.errors import DataError, UsageError
from agentrt.runtime.ports import Tokenizer
from agentrt.training.card import data_file, skip_counts
from agentrt.training.derive import derive
from agentrt.training.examples import Recorded, read_recorded, write_recorded
from agentrt.training.judged_file import read_judged
from agentrt.training.pair_file import read_pairs
from agentrt.training.retell import retell
from agentrt.training.sources import Skipped, read_questions
from agentrt.training.told import Told
from agentrt.training.trajectory_file import read_trajectories
from agentrt_tools.corpus import open_corpus

TRAJECTORIES: Final = "trajectories.jsonl"
SKIPPED: Final = "skipped.jsonl"
FACTS: Final = "facts.json"


class Source(NamedTuple):
    """A file of questions and the corpus that holds their pages."""

    questions: Path
    corpus: Path


class ToldFile(NamedTuple):
    """A file of recorded episodes, or, with a `role`, of that role's inputs and outputs; `judged`: of an evaluation's
    episodes, for the role that judges."""

    path: Path
    role: str = ""
    judged: bool = False

    def read(self, team: Team) -> tuple[list[Told], list[Skipped]]:
        if self.judged:
            return read_judged(self.path, team)
        return read_pairs(self.path, self.role, team) if self.role else read_trajectories(self.path, team)


def derive_data(
    team: Team,
    tokenizer: Tokenizer,
    sources: Sequence[Source],
    out: Path,
    *,
    told: Sequence[ToldFile] = (),
    split: str | None = "train",
    variants: int = 1,
    seed: int = 0,
    limit: int | None = None,
    licence: str = "not stated",
    backbone: str | None = None,
    reuse: bool = False,
    report: Callable[[str, float, float], None] = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Trajectories from all `sources` and `told` files into `out/data`; returns the facts that cards quote.

    `limit` takes the first questions of each source, and the first episodes of each file, only. `reuse`: what is there
    is kept if it was made from the same in the same way. `backbone`: the content hash of the model that is to be
    trained on them; None for no training. Raises DataError if no trajectory comes out.
    """
    files = dict.fromkeys([*(path for source in sources for path in source), *(file.path for file in told)])
    listed = [data_file(path)._asdict() for path in files]
    asked = [
        _of_the_text(team),
        listed,
        [(file.role, file.judged) for file in told],
        split,
        variants,
        seed,
        limit,
        licence,
        backbone,
    ]
    request = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    if reuse and (before := _unchanged(out, request)) is not None:
        return before
    recorded: list[Recorded] = []
    skipped: list[Skipped] = []
    rows = {"questions": 0, "episodes": 0}
    for source in sources:
        questions, unusable = read_questions(source.questions, open_corpus(source.corpus), split=split)
        questions = questions[:limit]
        rows["questions"] += len(questions) + len(unusable)
        skipped += unusable
        episodes = derive(team, tokenizer, questions, source.corpus, variants=variants, seed=seed)
        for done, one in enumerate(episodes, start=1):
            if one.recorded is not None:
                recorded.append(one.recorded)
            if one.skipped is not None:
                skipped.append(one.skipped)
            report(f"deriving from {source.questions.name}", done, len(questions) * variants)
    for file in told:
        read, unusable = file.read(team)
        read = read[:limit]
        rows["episodes"] += len(read) + len(unusable)
        skipped += unusable
        for done, made in enumerate(retell(team, tokenizer, read), start=1):
            if isinstance(made, Recorded):
                recorded.append(made)
            else:
                skipped.append(made)
            report(f"reading {file.path.name}", done, len(read))
    if not recorded:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in skip_counts(skipped).items())
        raise DataError(f"nothing gave a trajectory: {reasons or 'the files hold no episode'}")
    facts = {
        **({} if backbone is None else {"backbone_sha256": backbone}),
        "files": listed,
        "request_sha256": request,
        "licence": licence,
        **rows,
        "trajectories": len(recorded),
        "trajectory_tokens": sum(len(one.token_ids) for one in recorded),
        "skipped": skip_counts(skipped),
        "seed": seed,
        "variants": variants,
    }
    return _write(out / "data", recorded, skipped, facts)


def _write(
    folder: Path, recorded: Sequence[Recorded], skipped: Sequence[Skipped], facts: dict[str, Any]
) -> dict[str, Any]:
    """The facts, with the hash of the trajectories. What was there stays until all is written; then the old facts go
    first and the new come last, so that after a kill there are none rather than others'."""
    folder.mkdir(parents=True, exist_ok=True)
    drafts = {name: folder / f".{name}.part" for name in (TRAJECTORIES, SKIPPED, FACTS)}
    write_recorded(drafts[TRAJECTORIES], recorded)
    rows = "".join(json.dumps(one._asdict(), ensure_ascii=False) + "\n" for one in skipped)
    drafts[SKIPPED].write_text(rows, encoding="utf-8")
    facts = {**facts, "trajectories_sha256": data_file(drafts[TRAJECTORIES]).sha256}
    drafts[FACTS].write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / FACTS).unlink(missing_ok=True)
    for name, draft in drafts.items():
        os.replace(draft, folder / name)
    return facts


def _unchanged(out: Path, request: str) -> dict[str, Any] | None:
    """The facts of data that an equal request gave, if its trajectories are still those."""
    folder = out / "data"
    if not (folder / FACTS).is_file() or not (folder / TRAJECTORIES).is_file():
        return None
    facts = read_facts(out)
    same = facts.get("request_sha256") == request
    return facts if same and facts.get("trajectories_sha256") == data_file(folder / TRAJECTORIES).sha256 else None


def check_data(out: Path) -> None:
    """Raise UsageError where `derive_data` has written nothing."""
    folder = out / "data"
    if not (folder / TRAJECTORIES).is_file() or not (folder / FACTS).is_file():
        raise UsageError(
            f"{folder} holds no trajectories; run train with --derive, --trajectories, --pairs or --judged first"
        )


def load_data(out: Path) -> tuple[list[Recorded], dict[str, Any]]:
    """What `derive_data` wrote. Raises UsageError if it is not there, DataError if it is not as it was written."""
    check_data(out)
    facts, path = read_facts(out), out / "data" / TRAJECTORIES
    now = data_file(path).sha256
    if facts.get("trajectories_sha256", now) != now:
        raise DataError(f"{path}: changed since {FACTS} was written beside it; derive the trajectories again")
    return list(read_recorded(path)), facts


def read_facts(out: Path) -> dict[str, Any]:
    """Raises DataError for facts that are not JSON."""
    path = out / "data" / FACTS
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}); derive the trajectories again") from None
    return facts


def _of_the_text(team: Team) -> dict[str, Any]:
    """What of a team decides the tokens of its episodes."""
    values = team.values()
    roles = {name: {**role, "adapter": team.adapter_name(name)} for name, role in values["roles"].items()}
    named = ("dialect", "preamble", "tools", "flow", "limits")
    return {"base": team.base.model, "roles": roles, **{name: values.get(name) for name in named}}
