"""The shipped team on a tiny model and tiny adapters, as arguments of any command."""

import json
from pathlib import Path

from agentrt.model.tiny import tiny_adapter, tiny_model, tiny_tokenizer

ROLES = ("plan", "action", "reflect")


def tiny_team(folder: Path) -> list[str]:
    """Writes them into `folder`; the tokens are bytes."""
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
