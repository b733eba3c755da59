"""What one turn read and took, in the words and sizes that people are shown."""

from typing import Final, NamedTuple

from agentrt.runtime.events import TurnFinished


class Read(NamedTuple):
    """Tokens run or read for a turn. `reused`: cached rows read as they were; `recomputed`: run a second time so that
    this turn could read them; `reconstructed`: run a second time by the base path, for those that share its cache;
    `new`: context that nobody had read."""

    reused: int
    recomputed: int
    reconstructed: int
    new: int

    @property
    def total(self) -> int:
        return sum(self)


MARKS: Final = "=#%+"


def read_of(event: TurnFinished) -> Read:
    usage = event.usage
    return Read(usage.reused_tokens, usage.recomputed_tokens, usage.reconstructed_tokens, usage.context_tokens)


def bar(read: Read, most: int, width: int = 40) -> str:
    """One of `MARKS` for each part of `read`; `most` tokens take the whole width."""
    ends = [round(width * sum(read[:count]) / max(most, 1)) for count in range(len(read) + 1)]
    return "".join(mark * (ends[at + 1] - ends[at]) for at, mark in enumerate(MARKS))


def cost(event: TurnFinished) -> tuple[str, ...]:
    """Reused, recomputed, reconstructed, new, generated, TTFT, KV."""
    read, usage = read_of(event), event.usage
    counts = (*read, usage.generated_tokens)
    return (*map(str, counts), f"{usage.ttft_s * 1000:.0f} ms", size(usage.kv_bytes))


def size(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:.1f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.0f} KiB"
