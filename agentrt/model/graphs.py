"""Decode steps as CUDA graphs: the launches of a step are recorded once for a shape, then started by one call.

What a recorded step reads of the host's are the numbers of one tensor that stays where it is. It is as long as the
shape says; rows of zeros, for which kernels do nothing, fill it up. Knows nothing of schemes and sessions.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from agentrt.model.recorder import Recorder
from agentrt.step import Pass
from agentrt_kernels.tables import flatten, views

if TYPE_CHECKING:  # these import triton
    from agentrt.model.addresses import Known
    from agentrt.model.context import StepContext
    from agentrt.model.decode_tables import DecodeTables
    from agentrt.model.kernels import StepKernels

MOST_ROWS: Final = 64
"""Beyond, the device has more to do than the host to say."""
MOST_GRAPHS: Final = 64
"""Kept by one engine; the one that was used least recently leaves."""

Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""forward(token ids [n], positions [n], rows [m]), all int64: the logits of these rows, [m, vocab]."""

_log = logging.getLogger("agentrt.model")


@dataclass(frozen=True)
class GraphUse:
    """Steps of one engine: how many graphs were recorded and replayed, and why other steps ran without."""

    recorded: int
    replayed: int
    refused: Mapping[str, int]
    unavailable: str | None
    """Why none is recorded here at all."""


class _Recorded(NamedTuple):
    numbers: torch.Tensor
    replay: Callable[[], None]
    logits: torch.Tensor
    kept: tuple[Any, ...]
    """What the launches read or write besides: memory that was freed could be somebody else's."""


class DecodeGraphs:
    """The recorded steps of one engine. `run` is called when the step's context is filled."""

    def __init__(
        self, context: "StepContext", forward: Forward, recorder: Recorder | None, unavailable: str | None
    ) -> None:
        """`forward` reads nothing of a step but its arguments and `context.kernels.step`.

        `unavailable`: why there is no recorder, or why it is not to be used.
        """
        self._context, self._forward, self._recorder = context, forward, recorder
        self._unavailable = unavailable
        self._known: Known | None = None
        self._recorded: dict[tuple[object, ...], _Recorded] = {}
        self._num_recorded = self._num_replayed = 0
        self._refused: Counter[str] = Counter()

    @property
    def use(self) -> GraphUse:
        return GraphUse(self._num_recorded, self._num_replayed, dict(self._refused), self._unavailable)

    def run(self, passes: Sequence[Pass]) -> list[torch.Tensor | None] | None:
        """By pass its logits [1, vocab] where it wants them; None for a step that must be run as others are."""
        kernels = self._context.kernels
        if kernels is None or self._recorder is None or self._unavailable:
            return None
        reason = self._refusal(passes, kernels)
        if reason is not None:
            self._refused[reason] += 1
            return None
        from agentrt.model.decode_tables import describe  # imports triton

        return self._run(describe(passes, kernels), kernels, self._recorder)

    def _refusal(self, passes: Sequence[Pass], kernels: "StepKernels") -> str | None:
        """A recorded step launches kernels only, each of them on the same tables in all layers of one window."""
        context = self._context
        if any(len(each) != 1 for each in passes):
            return "more than one token of a path: reading, or rows that ride beside decoding"
        if len(passes) > MOST_ROWS:
            return f"more than {MOST_ROWS} rows"
        if context.translations or context.base_key_writes:
            return "keys or values made for a reader"
        if context.layer_writes or any(reader.overlaid for reader in context.readers):
            return "rows of some layers only"
        known = len(kernels.windows) == len(kernels.step.known.addresses.caches)
        return None if known else "the first step: some layers have never attended"

    def _run(
        self, step: "DecodeTables", kernels: "StepKernels", recorder: Recorder
    ) -> list[torch.Tensor | None] | None:
        if step.known is not self._known:  # planes have grown: what was recorded has their old addresses
            self._recorded.clear()
            self._known = step.known
        numbers = flatten(step.tables, kernels.device)
        recorded = self._recorded.pop(step.shape, None)
        if recorded is None:
            try:
                recorded = self._record(step, numbers, kernels, recorder)
            except RuntimeError as error:
                self._unavailable = f"a step could not be recorded: {error}"
                _log.warning("cuda_graphs: %s", self._unavailable)
                return None
        self._recorded[step.shape] = recorded
        recorded.numbers.copy_(numbers, non_blocking=True)
        recorded.replay()
        self._num_replayed += 1
        logits = iter(torch.split(recorded.logits.clone(), 1))  # the next replay overwrites them
        return [next(logits) if wanted else None for wanted in step.wanted]

    def _record(
        self, step: "DecodeTables", numbers: torch.Tensor, kernels: "StepKernels", recorder: Recorder
    ) -> _Recorded:
        place = numbers.to(kernels.device, copy=True)
        inputs, fixed = step.on(views(place, step.tables))
        before = kernels.step

        def launch() -> torch.Tensor:
            kernels.step = fixed
            return self._forward(*(each.view(-1).long() for each in inputs))

        try:
            replay, logits = recorder.record(launch)
        finally:
            kernels.step = before
        if len(self._recorded) == MOST_GRAPHS:
            self._recorded.pop(next(iter(self._recorded)))
        self._num_recorded += 1
        return _Recorded(place, replay, logits, (fixed, kernels.scratch))
