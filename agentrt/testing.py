"""Doubles for tests of teams, tools and flows, without a model: shipped, so that users can write such tests too.

    engine = ScriptedEngine(["I know this.", "Finish", "Paris", "It is right.", "right"])
    with Runtime(team, engine=engine, tools={"Search": FakeTool("fake.search")}) as rt:
        assert rt.run("What is the capital of France?").answer == "Paris"

For tests on a real engine there are `tiny_model` and `tiny_adapter`, random weights that read no file.

The scripted engine keeps the engine's rules: what a script writes goes through the same tokens, stops and
constraints as what a model writes. So a run with a gold policy renders exactly the text to train on.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from agentrt.config.flow import Emits
from agentrt.config.sections import DialectConfig
from agentrt.errors import AgentrtError, EngineClosedError, TurnCancelledError
from agentrt.model.sampling import Sampling
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.ports import FinishReason, Tokenizer
from agentrt.trajectory import Trajectory
from agentrt_tools import Json, ToolFailed, ToolResult

if TYPE_CHECKING:
    from agentrt.model.tiny import tiny_adapter, tiny_model

__all__ = [
    "ByteTokenizer",
    "FakeTool",
    "Script",
    "ScriptError",
    "ScriptedEngine",
    "ScriptedSession",
    "ScriptedTurn",
    "tiny_adapter",
    "tiny_model",
]


def __getattr__(name: str) -> Any:
    """`tiny_model` and `tiny_adapter` come from `agentrt.model.tiny`, imported only when asked for."""
    if name in ("tiny_adapter", "tiny_model"):
        from agentrt.model import tiny

        return getattr(tiny, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Script = Callable[[str, Emits, str], str | Sequence[int]]
"""(adapter, field, text so far) -> the field's text, as it would be read back; or exact token ids."""


class ScriptError(AgentrtError):
    """A script ran out, or wrote what the field's constraint does not allow."""


class ByteTokenizer:
    """One token per UTF-8 byte (ids 0 to 255), plus one for each of `merges`; the longest that fits wins.

    Merges are for tests of tokens that hold more than one character, such as "]\\n".
    """

    def __init__(self, *merges: str, eos_ids: Sequence[int] = ()) -> None:
        self._merges = sorted(((merge.encode(), 256 + at) for at, merge in enumerate(merges)), key=lambda m: -len(m[0]))
        self._bytes = {token_id: piece for piece, token_id in self._merges}
        self.eos_ids = tuple(eos_ids)
        self.marks: tuple[str, ...] = ()

    def encode(self, text: str) -> list[int]:
        data, token_ids, at = text.encode(), list[int](), 0
        while at < len(data):
            piece, token_id = next(
                ((piece, token_id) for piece, token_id in self._merges if data.startswith(piece, at)),
                (data[at : at + 1], data[at]),
            )
            token_ids.append(token_id)
            at += len(piece)
        return token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        pieces = (self._bytes.get(token_id) or bytes([token_id]) for token_id in token_ids)
        return b"".join(pieces).decode(errors="replace")


@dataclass(frozen=True)
class ScriptedUsage:
    """Token counts are real, as of an engine that shares everything; times and bytes are 0."""

    context_tokens: int
    reused_tokens: int
    recomputed_tokens: int
    generated_tokens: int
    reconstructed_tokens: int = 0
    ttft_s: float = 0.0
    submit_to_first_token_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    kv_bytes: int = 0


@dataclass(frozen=True)
class ScriptedResult:
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[float, ...]
    """0 for every token: a script is sure of itself."""
    usage: ScriptedUsage


@dataclass(frozen=True)
class ScriptedHealth:
    """A scripted engine writes when it is asked: nothing waits, nothing is held."""

    status: str
    error: str | None = None
    sessions: int = 0
    waiting: int = 0
    decoding: int = 0
    waiting_for_room: int = 0
    held_bytes: int = 0


class ScriptedEngine:
    """An engine without a model. `script` is a function, or texts that are written in order, one per turn.

    A text is the field as it would be read back ("Search"); the engine renders it in `dialect`. Token ids are
    generated as they are, for outputs that no well-behaved model makes.
    """

    def __init__(
        self,
        script: Script | Iterable[str | Sequence[int]],
        *,
        tokenizer: Tokenizer | None = None,
        dialect: DialectConfig | None = None,
        adapter_names: Sequence[str] = (),
        scheme_name: str = "scripted",
        max_context: int = 1 << 20,
    ) -> None:
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.renderer = Renderer(dialect or DialectConfig(), self.tokenizer)
        self.adapter_names = tuple(adapter_names)
        self.scheme_name = scheme_name
        self.max_context = max_context
        self.weights: dict[str, str] = {}
        self.sessions: list[ScriptedSession] = []
        """Every session ever opened, for assertions."""
        self.closed = False
        self._script = script if callable(script) else _in_order(script)

    def session(self, preamble: Sequence[int] | None = None) -> "ScriptedSession":
        if self.closed:
            raise EngineClosedError("the scripted engine was closed")
        session = ScriptedSession(self)
        session.append(preamble or (), author="system", kind="preamble")
        session.trajectory.preamble = len(session.trajectory)
        self.sessions.append(session)
        return session

    def health(self) -> ScriptedHealth:
        return ScriptedHealth("closed" if self.closed else "ok", sessions=sum(not s.closed for s in self.sessions))

    def write(self, adapter: str, kind: Emits, so_far: str) -> list[int]:
        """The tokens of the next turn."""
        written = self._script(adapter, kind, so_far)
        return self.renderer.field(kind, written) if isinstance(written, str) else list(written)

    def close(self) -> None:
        self.closed = True


class ScriptedSession:
    """One trajectory, with the spans and processing paths that the real engine records."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.trajectory = Trajectory()
        self.closed = False

    def append(self, token_ids: Sequence[int], author: str = "user", kind: str = "context") -> None:
        self.trajectory.append(token_ids, author, kind)

    def turn(
        self,
        adapter: str,
        new_token_ids: Sequence[int] = (),
        sampling: Sampling | None = None,
        *,
        kind: str = "thought",
    ) -> "ScriptedTurn":
        if self.closed:
            raise EngineClosedError("the session was closed")
        self.append(new_token_ids)
        return ScriptedTurn(self, adapter, sampling or Sampling(), kind)

    def crop(self, length: int) -> None:
        self.trajectory.crop(length)

    def close(self) -> None:
        self.closed = True


class ScriptedTurn:
    """A turn that samples a token each time it is asked for one, so that a test can cancel it at an exact place."""

    def __init__(self, session: ScriptedSession, adapter: str, sampling: Sampling, kind: str) -> None:
        self._session, self._adapter, self._sampling, self._kind = session, adapter, sampling, kind
        self._generated: list[int] = []
        self._cancelled = threading.Event()
        self._result: ScriptedResult | None = None
        self._tokens = self._run()

    def __iter__(self) -> Iterator[int]:
        return self._tokens

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def result(self) -> ScriptedResult:
        for _ in self._tokens:
            pass
        if self._result is None:
            raise TurnCancelledError("the turn was cancelled")
        return self._result

    def _run(self) -> Iterator[int]:
        trajectory, engine = self._session.trajectory, self._session.engine
        before, reused = len(trajectory), trajectory.num_processed
        script = list(self._sampling.forced)
        if len(script) < self._sampling.max_new_tokens:
            so_far = engine.tokenizer.decode([*trajectory.token_ids, *script])
            script += engine.write(self._adapter, _field(self._kind), so_far)
        while (reason := self._finished(script)) is None:
            token_id = self._next(script)
            self._generated.append(token_id)
            yield token_id
        trajectory.mark_processed(before, self._adapter)
        trajectory.append(self._generated, self._adapter, self._kind)
        trajectory.mark_processed(max(before, len(trajectory) - 1), self._adapter)
        usage = ScriptedUsage(before - reused, reused, 0, len(self._generated))
        logprobs = (0.0,) * len(self._generated)
        self._result = ScriptedResult(tuple(self._generated), reason, logprobs, usage)

    def _finished(self, script: list[int]) -> FinishReason | None:
        """Why the turn is over before another token, in the order in which the engine checks."""
        sampling, generated = self._sampling, self._generated
        if self._cancelled.is_set():
            raise TurnCancelledError("the turn was cancelled")
        if sampling.forces(generated):
            return None
        allowed = sampling.allowed(generated)
        if allowed is not None and not allowed:
            return "constraint"
        if sampling.stop is not None and generated and sampling.stop(generated):
            return "stop"
        if len(generated) >= sampling.max_new_tokens:
            return "length"
        if sampling.constraint is None and len(generated) == len(script):
            return "length"  # a script without its terminator stands for a model that was cut off there
        return None

    def _next(self, script: list[int]) -> int:
        at, sampling = len(self._generated), self._sampling
        allowed = sampling.allowed(self._generated)
        # Where one choice begins another, the marker behind it decides; no script writes it.
        wanted = script[at] if at < len(script) else self._session.engine.renderer.label("argument")[0]
        if allowed is None or wanted in allowed:
            return wanted
        decode = self._session.engine.tokenizer.decode
        choices = sorted(decode([*self._generated, token_id]) for token_id in allowed)
        listed = ", ".join(map(repr, choices[:8])) + (f" and {len(choices) - 8} more" if len(choices) > 8 else "")
        raise ScriptError(
            f"the script writes {decode(script)!r} as {self._kind} of {self._adapter or 'the backbone'}, which its "
            f"constraint does not allow: after {decode(self._generated)!r} there may come {listed}"
        )


class FakeTool:
    """A tool that answers from a mapping; it remembers its arguments in `calls`.

    An answer is a text, a ToolResult, or a ToolFailed to raise. Any other argument is a miss.
    """

    def __init__(self, name: str, answers: Mapping[str, str | ToolResult | ToolFailed] | None = None) -> None:
        self.name = name
        self.answers = dict(answers or {})
        self.calls: list[str] = []

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        self.calls.append(argument)
        answer = self.answers.get(argument)
        if isinstance(answer, ToolFailed):
            raise answer
        if isinstance(answer, ToolResult):
            return answer
        if answer is None:
            return ToolResult(f"No results for [{argument}].", state=dict(state), miss=True)
        return ToolResult(answer, state=dict(state))


def _in_order(script: Iterable[str | Sequence[int]]) -> Script:
    turns = iter(script)
    lock = threading.Lock()

    def write(adapter: str, kind: Emits, so_far: str) -> str | Sequence[int]:
        with lock:
            try:
                return next(turns)
            except StopIteration:
                raise ScriptError(f"the script has no text left for {kind} of {adapter or 'the backbone'}") from None

    return write


def _field(kind: str) -> Emits:
    for emits in get_args(Emits):
        if emits == kind:
            return emits  # type: ignore[no-any-return]  # get_args of a Literal of strings
    raise ScriptError(f"{kind!r} is no field that a role writes")
