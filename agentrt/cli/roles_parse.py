"""`agentrt roles parse`: how many recorded action lines each grammar reads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrt.cli.options import Json, Quiet, Verbose
from agentrt.cli.output import Output

if TYPE_CHECKING:
    from agentrt.evaluate.action_texts import ParseCounts


def parse(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Trajectories as JSONL, one episode a row.")],
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Read every action line of trajectory files with `parser: strict` and with `parser: lenient`.

    `nothing`: lines that say in so many words that no action is taken; they count as read. Repairs are counted each.
    """
    from agentrt.evaluate.action_texts import ParseCounts, count_file

    out, total = Output(as_json=as_json, quiet=quiet), ParseCounts()
    rows = []
    for file in files:
        counts = count_file(file)
        total.add(counts)
        rows.append((file.name, counts))
    if len(rows) > 1:
        rows.append(("all", total))
    for name, counts in rows:
        record = {"texts": counts.texts, "strict": counts.strict, "lenient": counts.lenient, "nothing": counts.nothing}
        out.record({"event": "actions_parsed", "file": name, **record, "repairs": dict(counts.repairs)})
    columns = ("file", "texts", "strict", "lenient", "nothing", "repairs")
    out.table(columns, [_row(name, counts) for name, counts in rows], right=columns[1:5])


def _row(name: str, counts: "ParseCounts") -> tuple[object, ...]:
    repairs = ", ".join(f"{kind} {count}" for kind, count in counts.repairs.most_common())
    shares = (f"{number / max(counts.texts, 1):.1%}" for number in (counts.strict, counts.lenient, counts.nothing))
    return name, counts.texts, *shares, repairs
