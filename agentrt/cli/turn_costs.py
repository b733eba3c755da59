"""What one turn read and took, in the words and sizes that people are shown."""

from typing import NamedTuple

from agentrt.runtime.events import TurnFinished


class Read(NamedTuple):
    """Tokens behind a turn's first token. `reused`: cached rows read as they were; `recomputed`: run a second time by
    an adapter or the neutral path; `new`: context that nobody had read."""

    reused: int
    recomputed: int
    new: int

    @property
    def total(self) -> int:
        return sum(self)


def read_of(event: TurnFinished) -> Read:
    usage = event.usage
    return Read(usage.reused_tokens, usage.recomputed_tokens, usage.context_tokens)


def bar(read: Read, most: int, width: int = 40) -> str:
    """`=` reused, `#` recomputed, `+` new; `most` tokens take the whole width."""
    ends = [round(width * sum(read[:count]) / max(most, 1)) for count in range(4)]
    return "".join(mark * (ends[at + 1] - ends[at]) for at, mark in enumerate("=#+"))


def cost(event: TurnFinished) -> tuple[str, ...]:
    """Reused, recomputed, new, generated, TTFT, KV."""
    read, usage = read_of(event), event.usage
    counts = (*read, usage.generated_tokens)
    return (*map(str, counts), f"{usage.ttft_s * 1000:.0f} ms", size(usage.kv_bytes))


def size(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.0f} KiB"
