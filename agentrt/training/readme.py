"""The README.md of an adapter folder: its card (`agentrt.training.card`) in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

README_FILE: Final = "README.md"

_PROCESSED_BY: Final = {
    "own": "by the adapter itself",
    "other_lr": "by the role that starts the flow, plus its own low-rank values",
    "other": "by the role that starts the flow",
    "neutral_lr": "with adapters off, plus its own low-rank values",
    "neutral": "with adapters off",
}


def adapter_readme(card: Mapping[str, Any]) -> str:
    """What the adapter is, what it was trained on and how, how well it does on what was held out, and versions."""
    role, adapter, result = card["role"], card["adapter"], card["result"]
    lines = [
        f"# LoRA adapter of the role `{role}`",
        "",
        f"For `{card['base_model']}`, in peft's format (bf16), written by `agentrt train`. `card.json` tells the same.",
        *_table("adapter", "", _shape(adapter)),
        *_section("Data", _data(card["data"])),
        *_table("file", "SHA-256", [(each["name"], f"`{each['sha256']}`") for each in card["data"].get("files", ())]),
        *_section("Training", _training(card)),
        *_section("Held-out examples", _held_out(result)),
        *_table("package", "version", list(card["versions"].items())),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _shape(adapter: Mapping[str, Any]) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        ("rank", adapter["rank"]),
        ("alpha", adapter["alpha"]),
        ("targets", ", ".join(adapter["targets"])),
    ]
    if adapter["shared_a"]:
        rows.append(("A", "as the seed draws it, not trained: the same for all roles"))
    if adapter["invocation"]:
        rows.append(("activated by", " ".join(map(str, adapter["invocation"]))))
    return rows


def _data(data: Mapping[str, Any]) -> Iterator[str]:
    yield f"Licence of the data: {data.get('licence', 'not stated')}."
    used = f"{data['examples']} examples to learn from"
    aside = f"{data['held_out_examples']}, those of {data['held_out_questions']} questions, were held out"
    yield f"{data.get('trajectories', '?')} trajectories gave {used}; {aside}."
    if skipped := data.get("skipped"):
        listed = "; ".join(f"{count} because {reason}" for reason, count in skipped.items())
        yield f"Not used: {listed}."


def _training(card: Mapping[str, Any]) -> Iterator[str]:
    settings, result = card["training"], card["result"]
    yield (
        f"{result['steps']} steps of {settings['sequences_per_step']} sequences, {result['tokens']} tokens of which "
        f"{result['targets']} were learnt, in {result['seconds'] / 60:.1f} minutes. AdamW, peak learning rate "
        f"{settings['learning_rate']:g}, {settings['warmup_steps']} steps of warm-up, then a cosine to zero; seed "
        f"{settings['seed']}. Loss {result['loss_first_20_steps']:.3f} in the first twenty steps, "
        f"{result['loss_last_20_steps']:.3f} in the last."
    )
    shares = "; ".join(f"{share:.0%} {_PROCESSED_BY[name]}" for name, share in settings["contexts"])
    yield f"What the role reads was processed: {shares}."
    if card["started_from"] is not None:
        yield "Training went on from an adapter; `started_from` in the card says how that one was trained."


def _held_out(result: Mapping[str, Any]) -> Iterator[str]:
    names = {
        "held_out_before": "Before training",
        "held_out": "After it",
        "held_out_shared": "After it, over contexts that the role did not process itself",
    }
    if result["held_out"] is None:
        yield "None: no question fell into the share that is held out, so nothing says how well the adapter does."
        return
    for name, words in names.items():
        if (score := result[name]) is None:
            continue
        fields = ", ".join(f"{kind} {count['right']} of {count['total']}" for kind, count in score["fields"].items())
        yield (
            f"{words}: loss {score['loss']:.3f} per token, {score['accuracy']:.1%} of tokens and "
            f"{score['field_accuracy']:.1%} of fields right ({fields})."
        )
    yield "A field is right if greedy decoding, given the true text before each token, writes exactly its tokens."


def _section(title: str, paragraphs: Iterator[str]) -> list[str]:
    return ["", f"## {title}", "", "\n\n".join(paragraphs)]


def _table(left: str, right: str, rows: Sequence[tuple[str, object]]) -> list[str]:
    return ["", f"| {left} | {right} |", "| --- | --- |", *(f"| {key} | {value} |" for key, value in rows)]
