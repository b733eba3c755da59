"""droidspeak_scattered: as droidspeak, but the layers replaced need not be neighbours."""

from dataclasses import dataclass
from typing import ClassVar

from agentrt.cache.layout import Layout
from agentrt.schemes.droidspeak import DroidSpeak
from agentrt.schemes.layer_sets import resolve_layers


@dataclass(frozen=True)
class DroidSpeakScattered(DroidSpeak):
    """Rows run from the first of `layers` to the last; K and V are replaced in these, and are the sender's between.

    layers: a list such as `0+4+9-11`, a range, or `middle`, `spread` (every third), `all`, `none`; or FILE.json, as
        `agentrt profile` measured it.
    """

    name: ClassVar[str] = "droidspeak_scattered"
    recomputes: ClassVar[str] = "from the first of some layers to the last, all that others wrote"
    holds: ClassVar[str] = "one full cache + one hidden state per token + these layers' rows each agent computed again"
    source: ClassVar[str] = "LRAgent (2602.01053), its DroidSpeak"

    def layer_set(self, layout: Layout) -> tuple[int, ...]:
        return resolve_layers(self.name, self.layers, layout.num_layers)
