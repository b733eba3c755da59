"""What a person sees of a training: one line a role, and what each came to."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from agentrt.cli.output import Output

if TYPE_CHECKING:
    from agentrt.training.parallel import Outcome
    from agentrt.training.role import RoleJob
    from agentrt.training.trainer import StepFacts

_EVERY_S: Final = 20.0
"""Seconds between two lines of a role where no terminal shows bars."""


def show_training(jobs: "Sequence[RoleJob]", at_once: int, output: Output) -> None:
    """Run the jobs, with one view of all. Raises the first error once all have ended."""
    from agentrt.training.parallel import train_all

    def ended(outcome: "Outcome") -> None:
        with view.ended(outcome.job.role):
            _tell(outcome, output)

    with _View(jobs, quiet=output.quiet) as view:
        outcomes = train_all(jobs, at_once, report=view.step, ended=ended)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    trained = [outcome.job.role for outcome in outcomes if outcome.error is None]
    output.record({"event": "train_finished", "roles": trained, "failed": [each.job.role for each in failed]})
    for outcome in failed:
        assert outcome.error is not None
        raise outcome.error


def _tell(outcome: "Outcome", output: Output) -> None:
    role, result = outcome.job.role, outcome.result
    if result is None:
        output.record({"event": "role_failed", "role": role, "message": str(outcome.error)})
        output.result(f"{role}: {outcome.error}", style="red")
        return
    held, folder = result.held_out, outcome.job.adapter_folder
    output.record(
        {
            "event": "role_trained",
            "role": role,
            "steps": result.steps,
            "seconds": round(result.seconds, 1),
            "loss": result.last_loss,
            "held_out_loss": held.loss if held else None,
            "held_out_accuracy": held.accuracy if held else None,
            "held_out_field_accuracy": held.field_accuracy if held else None,
            "adapter": str(folder),
        }
    )
    score = f"held out {held.loss:.3f} ({held.field_accuracy:.1%} of fields right)" if held else "nothing held out"
    output.result(
        f"{role}: {result.steps} steps in {result.seconds / 60:.1f} min, "
        f"loss {result.first_loss:.3f} -> {result.last_loss:.3f}, {score}; saved in {folder}"
    )


class _View:
    """A bar a role with the time left on a terminal, else a line now and then; `quiet`: nothing."""

    def __init__(self, jobs: "Sequence[RoleJob]", *, quiet: bool) -> None:
        self._roles = {job.role: _RoleView(job.role, job.other) for job in jobs}
        self._quiet = quiet
        self._bars: Any = None

    def __enter__(self) -> "_View":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._console = Console(file=sys.stderr, highlight=False)
        if self._console.is_terminal and not self._quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._bars = Progress(*columns, console=self._console, transient=True)
            self._bars.start()
            for view in self._roles.values():
                view.task = self._bars.add_task(view.text, total=1.0, start=False)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def step(self, role: str, facts: "StepFacts") -> None:
        view = self._roles[role]
        first = view.loss is None
        view.add(facts)
        if self._bars is not None:
            if first:
                self._bars.start_task(view.task)
            self._bars.update(view.task, completed=facts.progress, description=view.text)
        elif not self._quiet and time.monotonic() - view.shown >= _EVERY_S:
            view.shown = time.monotonic()
            self._console.print(view.text + view.left(facts.progress), soft_wrap=True)

    @contextmanager
    def ended(self, role: str) -> Iterator[None]:
        """Without the role's bar, and with no bars while something is printed."""
        if self._bars is None:
            yield
            return
        self._bars.remove_task(self._roles[role].task)
        self._bars.stop()
        yield
        self._bars.start()


class _RoleView:
    """Where a role's training stands."""

    def __init__(self, role: str, waits_for: str | None) -> None:
        self._role = role
        self.text = f"{role} waits" + (f" for {waits_for}" if waits_for else "")
        self.loss: float | None = None
        self.shown = float("-inf")
        self.task: Any = None
        self._begun_at = 0.0
        self._spent = 0.0

    def add(self, facts: "StepFacts") -> None:
        if self.loss is None:  # a resumed run starts in the middle
            self.loss, self._begun_at = facts.loss, facts.progress
        else:
            self.loss = 0.9 * self.loss + 0.1 * facts.loss
            self._spent += facts.seconds
        self.text = f"{self._role} step {facts.step}/{facts.total_steps} loss {self.loss:.3f}"

    def left(self, progress: float) -> str:
        done = progress - self._begun_at
        return f", about {self._spent / done * (1 - progress) / 60:.0f} min left" if done > 0 else ""
