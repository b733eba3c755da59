"""What a load test is asked for."""

from dataclasses import dataclass
from typing import get_args

from agentrt.errors import UsageError
from agentrt.evaluate.replay.plan import ReplayPlan, Variant, variants
from agentrt.evaluate.serving.arrivals import Arrivals


@dataclass(frozen=True)
class ServePlan:
    """`replay` names trace, schemes, adapters and seed. Rates are arrivals a second, of trajectories or of calls.

    rates: the rates to offer; () = `loads`, as shares of the highest saturation among the schemes.
    trajectories: how many arrive at each rate.
    """

    replay: ReplayPlan
    context: int
    arrivals: Arrivals = "trajectories"
    rates: tuple[float, ...] = ()
    loads: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9, 1.1)
    trajectories: int = 16

    def __post_init__(self) -> None:
        if self.arrivals not in get_args(Arrivals):
            raise UsageError(f"--arrivals {self.arrivals}: choose trajectories or calls")
        if self.trajectories < 1:
            raise UsageError(f"--trajectories {self.trajectories}: at least 1")
        for name, values in (("--rates", self.rates), ("--loads", self.loads)):
            if bad := [value for value in values if not value > 0]:
                raise UsageError(f"{name} {bad[0]}: above 0")
        if not self.rates and not self.loads:
            raise UsageError("--loads: name at least one")

    @property
    def variant(self) -> Variant:
        """The one crew of the trace. Raises UsageError for a trace with several."""
        found = variants(self.replay)
        if len(found) > 1:
            raise UsageError(
                f"--trace {self.replay.name} has {len(found)} variants ({', '.join(each.group for each in found)}); "
                "serve-bench takes one: a trace file with `agents:`, or --random-adapters n=4 for a trace with crews"
            )
        return found[0]
