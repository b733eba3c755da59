"""Progress of slow one-time work, on stderr and only where a person watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

Report = Callable[[str, float, float], None]
"""`report(stage, done, total)`: any unit; a new `stage` starts a new bar."""


def silent(stage: str, done: float, total: float) -> None:
    """A report that shows nothing."""


@contextmanager
def progress_bar(console: Console | None = None, *, quiet: bool = False) -> Iterator[Report]:
    """A report that draws rich bars on stderr, which vanish at the end; silent if `quiet`, or stderr is no terminal."""
    # the file is bound now: while a GGUF is read, `sys.stderr` is replaced
    console = console or Console(file=sys.stderr)
    if quiet or not console.is_terminal:
        yield silent
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, redirect_stderr=False) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: float, total: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=min(done, total), total=total)

        yield report
