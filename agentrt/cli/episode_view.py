"""Shows the events of an episode to people, as they happen. Knows events and the dialect's markers, no engine."""

from agentrt.cli.output import Output
from agentrt.config.sections import DialectConfig
from agentrt.runtime.events import (
    Event,
    RunFinished,
    RunStarted,
    Token,
    ToolCalled,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)


class EpisodeView:
    """`show` takes every event of one run, in order. A field's terminator is not shown."""

    def __init__(self, out: Output, dialect: DialectConfig, gold: str | None = None) -> None:
        self._out = out
        self._markers = (dialect.close, dialect.end)
        self._gold = gold
        self._step = -1
        self._raw = ""
        self._shown = ""

    def show(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._out.say(f"Question: {event.question}", style="bold")
                self._out.say(f"team {event.team}, scheme {event.scheme}, seed {event.seed}, run {event.run_id}\n")
            case TurnStarted():
                self._head(event.step, event.role, event.emits)
                self._raw = self._shown = ""
            case Token():
                self._token(event.text)
            case TurnFinished():
                rest = event.text[len(self._shown) :] if event.text.startswith(self._shown) else ""
                self._out.say(rest + ("" if event.finish_reason != "length" else " ... (cut off)"))
            case ToolCalled():
                self._head(event.step, event.action, "observes")
            case ToolFinished():
                failed = f"FAILED ({event.failure}): " if event.failure else ""
                self._out.say(f"{failed}{event.text}", style="red" if event.failure else "dim")
            case RunFinished():
                self._finish(event)

    def _head(self, step: int, who: str, what: str) -> None:
        number = "" if step == self._step else str(step)
        self._step = step
        self._out.say(f"{number:>2}  {who:<9} ", end="", style="cyan")
        self._out.say(f"{what:<9} ", end="", style="dim")

    def _token(self, text: str) -> None:
        """Show what is certain to belong to the field: nothing from its terminator on."""
        self._raw += text
        readable = self._raw.lstrip()
        ends = [at for marker in self._markers if (at := readable.find(marker)) >= 0]
        readable = readable[: min(ends, default=len(readable))]
        if readable.startswith(self._shown):
            self._out.say(readable[len(self._shown) :], end="")
            self._shown = readable

    def _finish(self, event: RunFinished) -> None:
        out = self._out
        out.say()
        if event.answer is not None and event.status == "finished":
            out.result(f"Answer: {event.answer}", style="bold")
        else:
            out.result(f"No answer: {event.status}" + (f" ({event.error})" if event.error else ""), style="bold red")
        if event.score is not None:
            verdict = "right" if event.score.get("correct") else "wrong"
            out.result(f"{verdict}: the answer is {self._gold} (F1 {event.score.get('f1', 0.0):.2f})")
        if out.quiet:
            return
        rows = [
            (
                role,
                usage.turns,
                usage.reused_tokens,
                usage.recomputed_tokens,
                usage.generated_tokens,
                f"{usage.ttft_s * 1000:.0f} ms",
                f"{usage.decode_tokens_per_s:.1f}",
                _size(usage.kv_bytes),
            )
            for role, usage in event.usage.items()
        ]
        columns = ("role", "turns", "reused", "recomputed", "generated", "TTFT", "tokens/s", "KV")
        out.table(columns, rows, right=columns[1:])
        out.say(_health(event))
        times = event.timing
        shares = f"model {times.turns_s:.1f} s, tools {times.tools_s:.1f} s"
        out.say(f"{event.steps} steps in {times.total_s:.1f} s: {shares}")


def _health(event: RunFinished) -> str:
    health = event.tool_health
    failures = health.get("failures")
    listed = ", ".join(f"{count} {kind}" for kind, count in failures.items()) if isinstance(failures, dict) else ""
    counts = ", ".join(f"{health.get(name, 0)} {name}" for name in ("calls", "misses", "retries"))
    return f"tools: {counts}, {f'failures: {listed}' if listed else 'no failures'}"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.0f} KiB"
