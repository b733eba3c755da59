"""`agentrt schemes`: what each sharing scheme shares, recomputes and holds, when it is exact, and what it takes."""

from agentrt.cli.options import Json, Quiet, Verbose
from agentrt.cli.output import Output

_SHOWN = 7
"""Columns without --verbose, which adds the options."""


def schemes(as_json: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """List the sharing schemes: what is shared, computed again and held, when they are exact, for which adapters."""
    from agentrt.schemes import SCHEMES

    out = Output(as_json=as_json, quiet=quiet)
    rows = []
    for name, scheme in SCHEMES.items():
        options = scheme().options()
        out.record(
            {
                "event": "scheme",
                "name": name,
                "shares": scheme.shares,
                "recomputes": scheme.recomputes,
                "holds": scheme.holds,
                "exact": scheme.exact,
                "adapters": scheme.adapters,
                "options": options,
                "source": scheme.source,
            }
        )
        row = (name, scheme.shares, scheme.recomputes, scheme.holds, scheme.exact, scheme.adapters, scheme.source)
        shown = ", ".join(f"{key}={value}" for key, value in options.items())
        rows.append((*row, shown))
    columns = ("scheme", "shares", "computes again", "holds", "exact", "adapters", "source", "options")
    count = None if verbose else _SHOWN
    out.table(columns[:count], (row[:count] for row in rows))
