"""Whether a team's labels, markers and texts can be told apart: a marker stops every field that holds it.

Findings only, nothing is raised.
"""

from collections.abc import Iterator, Mapping

from agentrt.config.checks import Finding
from agentrt.config.flow import VERDICT_NAME, FlowConfig
from agentrt.config.sections import DialectConfig, RoleConfig
from agentrt.config.yaml import Path_


def check_template(
    dialect: DialectConfig, flow: FlowConfig, preamble: str, roles: Mapping[str, RoleConfig]
) -> Iterator[Finding]:
    """Labels differ, and so do markers; no marker is in a text that the runtime writes or has written field by field.

    A preamble and instructions are not written by a role, so they may hold brackets and line ends; an end marker of
    words in them would show a role where to stop before its field began.
    """
    labels = {name: getattr(dialect, name) for name in ("question", "thought", "action", "observation")}
    markers = {name: getattr(dialect, name) for name in ("open", "close", "end")}
    for group in (labels, markers):
        seen: dict[str, str] = {}
        for name, text in group.items():
            if text in seen:
                yield Finding(("dialect", name), f"{name} and {seen[text]} are both {text!r}: make them differ")
            seen.setdefault(text, name)
    for name, label in labels.items():
        for marker in _held(label, markers):
            message = f"the label {label!r} contains the {marker}: change one of them"
            yield Finding(("dialect", name), message)
        if label != label.rstrip():
            message = f"{label!r} ends in a blank: leave it out, `lead` is put before every field already"
            yield Finding(("dialect", name), message)
    for marker in _held(dialect.lead, markers):
        message = f"the lead {dialect.lead!r} contains the {marker}, which would end every field at once: change one"
        yield Finding(("dialect", "lead"), message)
    if any(node.emits == "verdict" for node in flow.role_nodes().values()):
        for marker in _held(VERDICT_NAME, markers):
            message = f"a verdict is written as {VERDICT_NAME!r}, which contains the {marker}: choose another marker"
            yield Finding(("dialect",), message)
    for path, text in _written(flow):
        for marker in _held(text, markers):
            yield Finding(path, f"{text!r} contains the {marker}: write it without, or choose another marker")
    if dialect.end.strip():
        for path, text in (("preamble",), preamble), *_instructions(roles):
            for marker in _held(text, {"end": dialect.end}):
                yield Finding(path, f"the text contains the {marker}: write it without, or choose another marker")


def _held(text: str, markers: Mapping[str, str]) -> list[str]:
    """The markers that `text` contains, as a message names them."""
    return [f"{name} marker {marker!r}" for name, marker in markers.items() if marker in text]


def _written(flow: FlowConfig) -> Iterator[tuple[Path_, str]]:
    """The strings that a field may be, with their places."""
    for name, node in flow.role_nodes().items():
        at: Path_ = ("flow", "nodes", name)
        for index, choice in enumerate(node.choices if isinstance(node.choices, tuple) else ()):
            yield (*at, "choices", index), choice
        for action, rule in node.constrain.items():
            for key, texts in (("choices", rule.choices), ("also", rule.also)):
                for index, text in enumerate(texts if isinstance(texts, tuple) else ()):
                    yield (*at, "constrain", action, key, index), text


def _instructions(roles: Mapping[str, RoleConfig]) -> Iterator[tuple[Path_, str]]:
    for name, role in roles.items():
        if role.instruction is not None:
            yield ("roles", name, "instruction"), role.instruction
