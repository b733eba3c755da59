"""Shows the events of an episode to people, as they happen. Knows events and the dialect's markers, no engine."""

from collections.abc import Mapping

from agentrt.cli.output import Output
from agentrt.cli.turn_costs import size
from agentrt.config.sections import DialectConfig
from agentrt.runtime.events import (
    ANSWERED,
    Event,
    RunFinished,
    RunResumed,
    RunStarted,
    Token,
    ToolCalled,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from agentrt_tools import ToolHealth


class EpisodeView:
    """`show` takes every event of one run, in order. A field's terminator is not shown."""

    def __init__(self, out: Output, dialect: DialectConfig) -> None:
        self._out = out
        self._markers = (dialect.close, dialect.end)
        self._failed: dict[str, str] = {}
        self._step = -1
        self._raw = ""
        self._shown = ""

    def show(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._out.say(f"Question: {event.question}", style="bold")
                self._out.say(f"team {event.team}, scheme {event.scheme}, seed {event.seed}, run {event.run_id}\n")
            case RunResumed():
                source = f"forked from {event.forked_from}, " if event.forked_from else ""
                self._out.say(f"Question: {event.question}", style="bold")
                self._out.say(f"run {event.run_id}, scheme {event.scheme}: {source}goes on after {event.turns} turns\n")
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
                if event.error is not None:
                    self._failed[event.action] = event.error
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
        if event.answer is not None and event.status in ANSWERED:
            forced = f" (forced by {event.forced_by})" if event.forced_by else ""
            out.result(f"Answer: {event.answer}{forced}", style="bold")
        else:
            out.result(f"No answer: {event.status}" + (f" ({event.error})" if event.error else ""), style="bold red")
        match event.score:  # any other is of a Python program, in terms of its own
            case {"correct": bool(correct), "f1": float(f1), "gold": str(gold)}:
                out.result(f"{'right' if correct else 'wrong'}: the answer is {gold} (F1 {f1:.2f})")
        health = ToolHealth.from_json(event.tool_health)
        if health.failed:  # never silent, not even under --quiet
            out.result(_failures(health, self._failed), style="bold red")
        if out.quiet:
            return
        if event.confidence is not None:
            out.say(f"confidence in the answer's words: {event.confidence:.2f}")
        rows = [
            (
                role,
                usage.turns,
                usage.reused_tokens,
                usage.recomputed_tokens,
                usage.reconstructed_tokens,
                usage.generated_tokens,
                f"{usage.ttft_s * 1000:.0f} ms",
                f"{usage.decode_tokens_per_s:.1f}",
                size(usage.kv_bytes),
            )
            for role, usage in event.usage.items()
        ]
        columns = ("role", "turns", "reused", "recomputed", "rebuilt", "generated", "TTFT", "tokens/s", "KV")
        out.table(columns, rows, right=columns[1:])
        out.say(
            f"tools: {health.calls} calls, {health.misses} misses, {health.retries} retries, {health.failed} failed"
        )
        times = event.timing
        shares = f"model {times.turns_s:.1f} s, tools {times.tools_s:.1f} s"
        out.say(f"{event.steps} steps in {times.total_s:.1f} s: {shares}")


def _failures(health: ToolHealth, last: Mapping[str, str]) -> str:
    """How many calls failed, by kind, and what each tool said last."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in health.failures.items())
    said = "".join(f"\n  {action}: {error}" for action, error in last.items())
    return f"tools FAILED in {health.failed} of {health.calls} calls ({kinds}){said}"
