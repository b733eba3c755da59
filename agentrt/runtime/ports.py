"""What the runtime needs of an engine: `agentrt.engine` is the real one, `agentrt.testing` a scripted one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from agentrt.model.sampling import Sampling
from agentrt.trajectory import Trajectory

FinishReason = Literal["stop", "length", "constraint"]


class Tokenizer(Protocol):
    """Text to token ids and back, segment by segment."""

    @property
    def eos_ids(self) -> Sequence[int]:
        """Ids with which the model ends a text of its own accord; perhaps none."""
        ...

    @property
    def marks(self) -> Sequence[str]:
        """Texts that are tokens of their own, such as "<|im_end|>" or "<tool_call>"; perhaps none."""
        ...

    def encode(self, text: str, /) -> list[int]:
        """No special tokens are added, and text that looks like one is read as plain text."""
        ...

    def decode(self, token_ids: Sequence[int], /) -> str:
        """The texts of segments concatenate to the text of all; part of a character becomes U+FFFD."""
        ...


class TurnUsage(Protocol):
    """What one turn cost. Times in seconds, rates in tokens a second, sizes in bytes."""

    @property
    def context_tokens(self) -> int:
        """Tokens that nobody had processed before."""
        ...

    @property
    def reused_tokens(self) -> int: ...
    @property
    def recomputed_tokens(self) -> int: ...
    @property
    def reconstructed_tokens(self) -> int:
        """Read once more by the base path, so that others can share them."""
        ...

    @property
    def generated_tokens(self) -> int: ...
    @property
    def ttft_s(self) -> float: ...
    @property
    def submit_to_first_token_s(self) -> float: ...
    @property
    def decode_tokens_per_s(self) -> float: ...
    @property
    def kv_bytes(self) -> int: ...


class TurnResult(Protocol):
    """A finished turn, with one log-probability per generated token."""

    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def finish_reason(self) -> FinishReason: ...
    @property
    def logprobs(self) -> Sequence[float]: ...
    @property
    def usage(self) -> TurnUsage: ...


class Turn(Protocol):
    """One agent call in flight: iterate it for token ids as they are sampled."""

    def __iter__(self) -> Iterator[int]: ...

    @property
    def result(self) -> TurnResult:
        """Waits for the end. Raises what ended the turn early, TurnCancelledError among others."""
        ...

    def cancel(self) -> None:
        """Ends the turn within a token or a prefill chunk; its session is then back at its last turn."""
        ...


class Session(Protocol):
    """One episode's trajectory in the engine."""

    @property
    def trajectory(self) -> Trajectory: ...

    def append(self, token_ids: Sequence[int], /, author: str, kind: str) -> object:
        """Add context, which the next turn reads."""
        ...

    def turn(self, adapter: str, /, *, sampling: Sampling, kind: str) -> Turn:
        """Start a turn of `adapter` (NEUTRAL: adapters off); it reads all unread context, then generates."""
        ...

    def close(self) -> None: ...


class EngineHealth(Protocol):
    """Whether an engine serves, and how busy it is."""

    @property
    def status(self) -> str:
        """ "ok", or why no turn would be taken."""
        ...

    @property
    def error(self) -> str | None: ...
    @property
    def sessions(self) -> int: ...
    @property
    def waiting(self) -> int:
        """Turns that were submitted and have no token yet."""
        ...

    @property
    def decoding(self) -> int: ...
    @property
    def waiting_for_room(self) -> int:
        """Of the waiting turns, those that the KV budget had no room for yet."""
        ...

    @property
    def held_bytes(self) -> int: ...


class Engine(Protocol):
    """A loaded backbone with its adapters under one scheme."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def scheme_name(self) -> str: ...

    @property
    def adapter_names(self) -> Sequence[str]: ...

    @property
    def weights(self) -> Mapping[str, str]:
        """A hash of each adapter's weights by name, and of the backbone's as "base"; empty without weights."""
        ...

    @property
    def max_context(self) -> int:
        """The most tokens a trajectory may have."""
        ...

    def session(self, /, preamble: list[int] | None) -> Session: ...

    def health(self) -> EngineHealth:
        """Raises nothing, whatever state the engine is in."""
        ...

    def close(self) -> None: ...
