"""Where a command's words go: results for machines on stdout, words for people on stdout or, beside JSON, stderr.

rich leaves out colour by itself under NO_COLOR and where the output is no terminal.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

_PLAIN_WIDTH: Final = 200
"""Columns of output that no terminal shows, so that a path and its line number stay in one piece."""

_CONTROLS: Final = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")})


def printable(text: str) -> str:
    """Without control characters: a terminal would obey those that a model or a service has written."""
    return text.translate(_CONTROLS)


class Output:
    """`as_json`: JSON lines on stdout and people on stderr. `quiet`: people get results only."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        from rich.console import Console  # `--help` needs none of rich's parts

        self.console = Console(stderr=as_json, soft_wrap=True, highlight=False, markup=False)
        if not self.console.is_terminal:
            self.console.width = _PLAIN_WIDTH

    def record(self, value: Mapping[str, Any]) -> None:
        """One line of JSON on stdout, if JSON was asked for."""
        if self.as_json:
            self.raw(json.dumps(value, ensure_ascii=False))

    def raw(self, line: str) -> None:
        """A line that is JSON already."""
        if self.as_json:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def say(self, text: str = "", *, end: str = "\n", style: str = "") -> None:
        """Progress and explanation, which --quiet leaves out."""
        if not self.quiet:
            self.console.print(printable(text), end=end, style=style)

    def result(self, text: str, *, style: str = "") -> None:
        """What was asked for."""
        if not (self.quiet and self.as_json):
            self.console.print(printable(text), style=style)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[object]], *, right: Iterable[str] = ()) -> None:
        """A table; columns named in `right` are aligned to the right."""
        if self.quiet and self.as_json:
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        right = set(right)
        box = SIMPLE_HEAD if self.console.is_terminal else None
        table = Table(box=box, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(printable(column), justify="right" if column in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(str(cell))) for cell in row))
        self.console.print(table, soft_wrap=False)
