"""The backbone that a command's settings and team name, for commands that measure it without episodes."""

from typing import TYPE_CHECKING

from agentrt.config.settings import Settings
from agentrt.config.team import Team

if TYPE_CHECKING:
    from agentrt.model.backbone import Backbone


def use_threads(settings: Settings) -> None:
    """Set the process's threads, if the settings name a number."""
    if settings.threads is not None:
        import torch

        torch.set_num_threads(settings.threads)


def load_backbone(team: Team, settings: Settings, dtype: str | None = None) -> "Backbone":
    """The team's model, on the settings' threads, device and kernels. `dtype` None: the team's."""
    from agentrt.model.backbone import Backbone

    use_threads(settings)
    return Backbone.load(
        team.base.model,
        dtype=dtype or team.base.dtype,
        device=settings.device,
        offline=settings.offline,
        backend=settings.backend,
    )
