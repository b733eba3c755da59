"""The shipped team on a tiny model and tiny adapters, as arguments of any command."""

import json
from pathlib import Path

from agentrt.model.tiny import tiny_adapter, tiny_model, tiny_tokenizer

ROLES = ("plan", "action", "reflect")


def tiny_team(folder: Path) -> list[str]:
    stock = tiny_model(vocab_size=259, layers=2, max_position_embeddings=8192)
    stock.save_pretrained(folder / "tiny")
    (folder / "tiny" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    arguments = ["--set", f"base.model={folder / 'tiny'}"]
    for seed, role in enumerate(ROLES):
        adapter = tiny_adapter(stock, folder / role, seed=seed)
        config = json.loads((adapter / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = str(folder / "tiny")
        (adapter / "adapter_config.json").write_text(json.dumps(config))
        arguments += ["--set", f"roles.{role}.adapter={adapter}"]
    return arguments


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
