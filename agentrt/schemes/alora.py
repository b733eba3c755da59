"""alora: adapters trained as activated LoRA, over the adapter-free cache that they leave exact for each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from agentrt.cache.layout import Layout
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.store import CacheStore
from agentrt.errors import SchemeError
from agentrt.schemes.base import Scheme
from agentrt.schemes.neutral_prefix import NeutralPrefixSession
from agentrt.schemes.rebase_shared import ReBaseShared
from agentrt.step import Pass
from agentrt.trajectory import NEUTRAL, Trajectory


@dataclass(frozen=True)
class Alora(Scheme):
    """The adapter takes over where its invocation last begins in the context; all before is read with adapters off.

    schedule: when the neutral path covers what the adapter read, as in rebase_shared.
    """

    name: ClassVar[str] = "alora"
    shares: ClassVar[str] = "K and V of the model with adapters off, up to the speaker's last invocation"
    recomputes: ClassVar[str] = "what was read from an invocation on, once more with adapters off"
    holds: ClassVar[str] = "one cache (+ one turn's private tail)"
    exact: ClassVar[str] = "always, to peft's activated LoRA"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down; only activated LoRA"
    source: ClassVar[str] = "activated LoRA (2504.12397); peft's alora_invocation_tokens"
    activated: ClassVar[bool] = True

    schedule: str = "lp"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rebase()

    @property
    def rides(self) -> bool:
        return self._rebase().rides

    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        return (layout.kv_spec(),)

    def check(self, layout: Layout) -> None:
        """Any activated adapters are allowed: nothing of them is shared between roles."""

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "AloraSession":
        return AloraSession(self._rebase(), layout.invocations, store, trajectory)

    def _rebase(self) -> ReBaseShared:
        return ReBaseShared(schedule=self.schedule)


class AloraSession(NeutralPrefixSession):
    """Tapes "base" and, during a turn, "private", which begins at the invocation: also before the turn's own context.

    base      [ adapters off ...................... | owed: adapters off, later ]
    private                        [ invocation ... | context | generated       ]
    """

    def __init__(
        self,
        scheme: ReBaseShared,
        invocations: Mapping[str, tuple[int, ...]],
        store: CacheStore,
        trajectory: Trajectory,
    ) -> None:
        super().__init__(scheme, (), store, trajectory)
        self._invocations = invocations

    def _empty(self, trajectory: Trajectory) -> Self:
        return type(self)(self._scheme, self._invocations, self._store, trajectory)

    def _private_start(self, speaker: str) -> int:
        """Raises SchemeError where the adapter is not invoked."""
        if speaker == NEUTRAL:
            return super()._private_start(speaker)
        invocation, context = self._invocations[speaker], self._trajectory.token_ids
        start = last_start(context, invocation)
        if start is None:
            raise SchemeError(
                f"scheme 'alora': no invocation of adapter {speaker!r} in the context of {len(context)} tokens; append "
                f"its alora_invocation_tokens {list(invocation)} before its turn"
            )
        return start

    @property
    def _lends(self) -> bool:
        """Also not where the adapter reads again what the base holds already, or is to hold as preamble."""
        base = self._base.end or min(self._trajectory.preamble, len(self._trajectory) - 1)
        return super()._lends and self._read_from >= base

    def _advance(self) -> list[Pass]:
        passes = []
        preamble = self._preamble.end
        if self._base.end < preamble and not self._direct:  # neutral also where the adapter takes over inside it
            passes = self._base_passes(preamble)
            self._trajectory.mark_processed(preamble, NEUTRAL)
        return [*passes, *super()._advance()]


def last_start(token_ids: Sequence[int], pattern: Sequence[int]) -> int | None:
    """Where `pattern` begins for the last time, as peft looks for it; None where it does not occur whole."""
    wanted = list(pattern)
    starts = range(len(token_ids) - len(wanted), -1, -1)
    return next((at for at in starts if list(token_ids[at : at + len(wanted)]) == wanted), None)
