"""Trains one role in a process of its own: `python -m agentrt.training.worker`.

Reads a RoleJob as JSON from stdin. Writes a JSON object a line: {"step": ...} after each step, and last {"result": ...}
or {"error": ...}. Ends by itself, at its next step, when nobody reads on.
"""

import json
import os
import signal
import sys
import traceback
from typing import Any, TextIO

from agentrt.errors import AgentrtError
from agentrt.training.role import RoleJob, run_job
from agentrt.training.trainer import StepFacts


def main() -> None:
    lines = _own_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what ends

    def tell(kind: str, value: dict[str, Any]) -> None:
        lines.write(json.dumps({kind: value}) + "\n")
        lines.flush()

    def step(facts: StepFacts) -> None:
        tell("step", facts._asdict())

    try:
        tell("result", run_job(RoleJob.from_json(sys.stdin.read()), step).to_json())
    except BrokenPipeError:
        os._exit(1)  # whoever started this is gone; the last checkpoint stays
    except AgentrtError as error:
        tell("error", {"kind": type(error).__name__, "message": str(error)})
    except Exception:
        tell("error", {"kind": "", "message": traceback.format_exc()})


def _own_stdout() -> TextIO:
    """The real stdout, for our lines alone: what a library prints goes to stderr."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lines


if __name__ == "__main__":
    main()
