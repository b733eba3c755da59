"""`agentrt schemes`: what each sharing scheme shares, recomputes and holds."""

from agentrt.cli.options import Json, Quiet, Verbose
from agentrt.cli.output import Output


def schemes(as_json: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """List the sharing schemes and their options."""
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
                "options": options,
                "source": scheme.source,
            }
        )
        shown = ", ".join(f"{key}={value}" for key, value in options.items())
        rows.append((name, scheme.shares, scheme.recomputes, scheme.holds, shown, scheme.source))
    columns = ("scheme", "shares", "computes again", "holds", "options", "source")
    out.table(columns[: None if verbose else 5], (row[: None if verbose else 5] for row in rows))
