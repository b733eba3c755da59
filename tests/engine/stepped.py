"""A backbone whose steps are looked at before they run; one of them can be made to fail, or to do something else."""

from collections.abc import Callable
from typing import Any

from agentrt.model.backbone import Backbone


class SteppedBackbone(Backbone):
    """Calls `before(step, planes)` ahead of every step. After `disturb`, lets `at` steps pass, and calls `then` in the
    middle of the layers of those that follow: once layer 0 has written its rows and before layer 1 does."""

    before: Callable[[Any, Any], None] = staticmethod(lambda step, planes: None)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.faults: list[BaseException] = []
        """What `before` raised: as a failed step it would look like an error of the engine."""
        self._until: int | None = None
        self._then: Callable[[], None] = self.calm
        self.model.model.layers[1].register_forward_pre_hook(self._enter)

    def run(self, step: Any, planes: Any, *rest: Any) -> Any:
        try:
            self.before(step, planes)
        except BaseException as fault:
            self.faults.append(fault)
        if self._until is not None:
            self._until -= 1
        return super().run(step, planes, *rest)

    def disturb(self, at: int, then: Callable[[], None]) -> None:
        self._until, self._then = at, then

    def calm(self) -> None:
        """No more of it."""
        self._until = None

    def _enter(self, module: Any, inputs: Any) -> None:
        if self._until is not None and self._until < 0:
            self._then()
