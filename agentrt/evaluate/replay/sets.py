"""The adapters that each scheme of a replay runs with."""

from collections.abc import Mapping
from pathlib import Path

from agentrt.errors import UsageError
from agentrt.evaluate.replay.plan import ReplayPlan, Variant
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.schemes import Scheme

SHARED_A = "base_lr_shared"
"""Random adapters of this scheme have one A between them, as it requires."""


class AdapterSets:
    """The adapter set of each scheme: the team's, or random ones, with a shared A where the scheme needs that."""

    def __init__(self, backbone: Backbone, plan: ReplayPlan, variant: Variant, folder: Path) -> None:
        self._backbone, self._plan, self._variant, self._folder = backbone, plan, variant, folder
        self._sets: dict[bool, AdapterSet] = {}
        self.source = plan.adapter_source if plan.adapters is not None else f"random {variant.random}"

    def of(self, scheme: Scheme) -> AdapterSet:
        shared_a = self._plan.adapters is None and scheme.name == SHARED_A
        if shared_a not in self._sets:
            self._sets[shared_a] = self._backbone.load_adapters(self._folders(shared_a))
        return self._sets[shared_a]

    def _folders(self, shared_a: bool) -> Mapping[str, Path]:
        agents, team = self._variant.agents, self._plan.adapters
        if team is not None:
            if missing := [agent for agent in agents if agent not in team]:
                known = ", ".join(team) or "none"
                raise UsageError(
                    f"--trace {self._plan.name}: the team has no adapter for {', '.join(missing)} (it has: {known}); "
                    "give --random-adapters r=8,targets=qv"
                )
            return {agent: team[agent] for agent in agents}
        random = self._variant.random
        return random.write(
            random.names(agents),
            self._backbone.shapes,
            self._folder / str(shared_a),
            base_name=self._backbone.names[0],
            seed=self._plan.seed,
            shared_a=shared_a,
        )
