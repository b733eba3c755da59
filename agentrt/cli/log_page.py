"""A run as one static page: everything it needs is in the file, and everything from the run is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from agentrt.cli.turn_costs import Read, cost, read_of, size
from agentrt.runtime.events import (
    ANSWERED,
    Event,
    RunFinished,
    RunResumed,
    RunStarted,
    ToolCalled,
    ToolFinished,
    TurnFinished,
)
from agentrt_tools import Json, ToolHealth

_ROLE_HUES: Final = (215, 145, 275, 25, 330, 185, 60, 0)
_PARTS: Final = Read._fields

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2430; --dim: #5b6575; --paper: #ffffff; --card: #f3f5f8; --line: #d5dae2;
  --bad: #b3261e; --reused: #5b8def; --recomputed: #d9822b; --reconstructed: #9b6bd3; --new: #8a94a6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --dim: #9aa5b5; --paper: #14181f; --card: #1e242d;
  --line: #343c48; --bad: #ff8a80; --reused: #6f9ff5; --recomputed: #e59a4c; --reconstructed: #b48be6;
  --new: #75808f; } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
.facts, .note { color: var(--dim); overflow-wrap: anywhere; }
.item { background: var(--card); border-left: .3rem solid var(--line); border-radius: .3rem; margin: .5rem 0;
  padding: .5rem .8rem; overflow-wrap: anywhere; }
.head { color: var(--dim); font-size: .85rem; } .head b { color: var(--ink); }
.text { white-space: pre-wrap; }
.failed { border-left-color: var(--bad) !important; } .failed .why { color: var(--bad); font-weight: 600; }
.bar { display: flex; height: .7rem; margin: .4rem 0 .1rem; min-width: 2px; }
.bar span { display: block; } .reused { background: var(--reused); } .recomputed { background: var(--recomputed); }
.reconstructed { background: var(--reconstructed); } .new { background: var(--new); }
.key span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; } th, td { padding: .2rem .8rem .2rem 0;
  border-bottom: 1px solid var(--line); text-align: right; } th:first-child, td:first-child { text-align: left; }
"""


def page(header: Mapping[str, Json], events: Sequence[Event]) -> str:
    """`events` are those that stand (see `LoggedRun.standing`), of a run that may not have ended."""
    turns = [event for event in events if isinstance(event, TurnFinished)]
    roles = {role: _ROLE_HUES[at % len(_ROLE_HUES)] for at, role in enumerate(dict.fromkeys(t.role for t in turns))}
    most = max((read_of(turn).total for turn in turns), default=1)
    finished = next((event for event in reversed(events) if isinstance(event, RunFinished)), None)
    first = next((event for event in events if isinstance(event, RunStarted | RunResumed)), None)
    question = first.question if first is not None else ""
    body = [
        f"<h1>{escape(question)}</h1>",
        _facts(header, first),
        _end(finished),
        "<h2>Turns and tool calls</h2>",
        _legend(),
        *(_item(event, roles, most) for event in events),
        *([_table(finished)] if finished is not None else []),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(question[:80])}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body></html>\n"
    )


def _facts(header: Mapping[str, Json], first: RunStarted | RunResumed | None) -> str:
    names = ("run_id", "team", "scheme", "seed", "base")
    facts = {name: header[name] for name in names if name in header}
    if first is not None:
        facts |= {"scheme": first.scheme}
    return f'<p class="facts">{" · ".join(f"{escape(name)} {escape(str(value))}" for name, value in facts.items())}</p>'


def _end(finished: RunFinished | None) -> str:
    if finished is None:
        return '<p class="item failed"><span class="why">The run has not ended.</span></p>'
    good = finished.status in ANSWERED and finished.answer is not None
    forced = f" (forced by {finished.forced_by})" if finished.forced_by else ""
    said = f"Answer: {finished.answer}{forced}" if good else f"No answer: {finished.status}"
    error = f" ({finished.error})" if finished.error else ""
    health = ToolHealth.from_json(finished.tool_health)
    told = f"{health.failed} of {health.calls} tool calls failed."
    failed = f' · <span class="why">{told}</span>' if health.failed else ""
    return f'<p class="item{"" if good and not failed else " failed"}"><b>{escape(said + error)}</b>{failed}</p>'


def _legend() -> str:
    said = ("reused from a cache", "recomputed", "reconstructed by the base path", "new context")
    keys = (f'<span class="{part}"></span>{what}' for part, what in zip(_PARTS, said, strict=True))
    return f'<p class="key note">Tokens of each turn:{"".join(keys)}</p>'


def _item(event: Event, roles: Mapping[str, int], most: int) -> str:
    match event:
        case TurnFinished():
            return _turn(event, roles[event.role], most)
        case ToolFinished():
            why = f'<div class="why">{escape(event.error or event.failure)}</div>' if event.failure else ""
            kind = "item failed" if event.failure else "item"
            tries = "1 attempt" if event.attempts == 1 else f"{event.attempts} attempts"
            took = f"{tries}, {event.seconds:.2f} s" + (", nothing found" if event.miss else "")
            head = f"step {event.step} · <b>{escape(event.action)}</b> observes ({escape(event.tool)}; {took})"
            return _card(kind, head, why + f'<div class="text">{escape(event.text)}</div>')
        case ToolCalled():
            head = f"step {event.step} · calls <b>{escape(event.action)}</b>"
            return _card("item", head, f'<div class="text">{escape(event.argument)}</div>')
        case RunResumed():
            source = f"forked from {event.forked_from}; " if event.forked_from else ""
            return f'<p class="note">{escape(source)}goes on here, under {escape(event.scheme)}</p>'
        case _:
            return ""


def _turn(event: TurnFinished, hue: int, most: int) -> str:
    read = read_of(event)
    parts = "".join(
        f'<span class="{part}" style="width:{100 * tokens / max(most, 1):.2f}%" title="{tokens} {part}"></span>'
        for part, tokens in zip(_PARTS, read, strict=True)
    )
    reused, recomputed, reconstructed, new, generated, ttft, kv = cost(event)
    read_told = f"{reused} reused, {recomputed} recomputed, {reconstructed} reconstructed, {new} new"
    told = f"{read_told}, {generated} generated · TTFT {ttft} · KV {kv}"
    cut = " (cut off)" if event.finish_reason == "length" else ""
    head = f"turn {event.turn}, step {event.step} · <b>{escape(event.role)}</b> {escape(event.emits)}{cut}"
    text = f'<div class="text">{escape(event.text)}</div><div class="bar">{parts}</div><div class="head">{told}</div>'
    return _card("item", head, text, f' style="border-left-color:hsl({hue} 60% 50%)"')


def _card(kind: str, head: str, inside: str, style: str = "") -> str:
    return f'<div class="{kind}"{style}><div class="head">{head}</div>{inside}</div>'


def _table(finished: RunFinished) -> str:
    names = ("role", "turns", "reused", "recomputed", "reconstructed", "generated", "TTFT", "KV")
    rows: Iterable[tuple[object, ...]] = (
        (
            *(role, u.turns, u.reused_tokens, u.recomputed_tokens, u.reconstructed_tokens, u.generated_tokens),
            *(_ms(u.ttft_s), size(u.kv_bytes)),
        )
        for role, u in finished.usage.items()
    )
    head = "".join(f"<th>{name}</th>" for name in names)
    cells = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<h2>By role</h2><div class="scroll"><table><tr>{head}</tr>{cells}</table></div>'


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
