"""Arguments that put the shipped team on a tiny model, and trajectories for it."""

import json
from pathlib import Path

from benchmarks.studies.tiny import ROLES, tiny_team

__all__ = ["ROLES", "tiny_team", "write_trajectories"]


def write_trajectories(file: Path, count: int = 3) -> None:
    """Trajectories of 20 tokens, of which nobody reads the last."""
    rows = [
        {
            "id": f"q{n}",
            "question_id": f"q{n}",
            "token_ids": [(7 * k + n) % 250 for k in range(20)],
            "spans": [
                [0, 5, "system", "preamble", True],
                [5, 9, "user", "question", True],
                [9, 12, "plan", "thought", True],
                [12, 14, "plan", "label", True],
                [14, 17, "action", "argument", True],
                [17, 19, "reflect", "verdict", True],
                [19, 20, "tool", "end", True],
            ],
        }
        for n in range(count)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
