"""What a team file's types cannot say: names that must be declared, nodes that must be reachable, adapters that must
exist. Every check returns findings; nothing is raised. What labels and markers must not be is in `template.py`."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from agentrt.config.backbones import surely_differ
from agentrt.config.flow import CHOOSES, DEFAULT, END, FINISH, FlowConfig, RoleNode, ToolNode
from agentrt.config.problems import looks_secret, suggest
from agentrt.config.sections import BaseConfig, LimitsConfig, RoleConfig, ToolConfig
from agentrt.config.yaml import Path_
from agentrt_tools.registry import ToolOptionError, check_tool


class Finding(NamedTuple):
    """`on_key`: the key is at fault rather than its value."""

    path: Path_
    message: str
    on_key: bool = False


def check_names(
    flow: FlowConfig, roles: Mapping[str, RoleConfig], tools: Mapping[str, ToolConfig]
) -> Iterator[Finding]:
    """Every role, node and tool that the flow names is declared; `end` and `Finish` are not redefined."""
    nodes = list(dict.fromkeys([*flow.nodes, END]))
    if END in flow.nodes:
        yield Finding(("flow", "nodes", END), f"{END!r} is the reserved final node: rename this one", on_key=True)
    if FINISH in tools:
        yield Finding(("tools", FINISH), f"{FINISH!r} ends the episode: give this tool another name", on_key=True)
    if flow.start not in flow.nodes:
        yield Finding(
            ("flow", "start"), f"node {flow.start!r} is not declared{suggest(flow.start, flow.nodes, 'nodes')}"
        )
    for name, node in flow.nodes.items():
        at: Path_ = ("flow", "nodes", name)
        targets = {"": node.next} if isinstance(node.next, str) else node.next
        for value, target in targets.items():
            if target not in nodes:
                place = (*at, "next", value) if value else (*at, "next")
                yield Finding(place, f"node {target!r} is not declared{suggest(target, nodes, 'nodes')}")
        if isinstance(node, RoleNode):
            if node.role not in roles:
                yield Finding((*at, "role"), f"role {node.role!r} is not declared{suggest(node.role, roles, 'roles')}")
            yield from _check_choices(at, node, tools)
            yield from _check_branches(at, node, flow)
            if node.emits == "call" and not any(isinstance(flow.nodes.get(to), ToolNode) for to in node.targets()):
                message = "a call leads to a tool node on at least one branch: `{tool: true, next: ...}`"
                yield Finding((*at, "next"), message)


def _check_choices(at: Path_, node: RoleNode, tools: Mapping[str, ToolConfig]) -> Iterator[Finding]:
    if node.emits in (*CHOOSES, "verdict") and not isinstance(node.choices, tuple):
        given = f"must be a list, not {node.choices}" if node.choices else "are missing"
        message = f"choices {given}: list what the {node.emits} may be, `choices: [one, other]`"
        yield Finding((*at, "choices"), message)
    if node.emits == "thought" and node.choices is not None:
        yield Finding((*at, "choices"), "a thought is free text: leave `choices` out", on_key=True)
    if node.constrain and node.emits != "argument":
        yield Finding(
            (*at, "constrain"), f"`constrain` is for arguments, this node emits {node.emits}: leave it out", on_key=True
        )
    if node.after and node.emits != "thought":
        message = f"`after` is for thoughts, this node emits {node.emits}: leave it out"
        yield Finding((*at, "after"), message, on_key=True)
    for before in node.after:
        if before != before.strip():
            yield Finding((*at, "after", before), f"{before!r}: leave out the blanks at its ends", on_key=True)
    for option in ("parser", "on_fail"):
        if getattr(node, option) is not None and node.emits != "call":
            message = f"`{option}` is for calls, this node emits {node.emits}: leave it out"
            yield Finding((*at, option), message, on_key=True)
    if not isinstance(node.choices, tuple):
        return
    for index, choice in enumerate(node.choices):
        if choice in node.choices[:index]:
            yield Finding((*at, "choices", index), f"{choice!r} is listed twice: keep one")
        elif node.emits in CHOOSES and choice not in tools and choice != FINISH:
            words = [*tools, FINISH]
            yield Finding(
                (*at, "choices", index),
                f"action {choice!r} is no declared tool{suggest(choice, words, 'tools and Finish')}",
            )


def _check_branches(at: Path_, node: RoleNode, flow: FlowConfig) -> Iterator[Finding]:
    actions = list(flow.actions())
    for action in node.constrain if node.emits == "argument" else ():
        if action not in actions:
            yield Finding(
                (*at, "constrain", action),
                f"no node chooses the action {action!r}{suggest(action, actions, 'actions')}",
                on_key=True,
            )
    if isinstance(node.next, str):
        return
    if node.emits == "thought":
        yield Finding((*at, "next"), "a thought decides nothing: `next` must be one node")
        return
    by_own_choice = node.emits in (*CHOOSES, "verdict") and isinstance(node.choices, tuple)
    values = list(node.choices) if by_own_choice and node.choices else actions
    for value in node.next:
        if value not in (*values, DEFAULT):
            yield Finding(
                (*at, "next", value),
                f"{value!r} is never chosen here{suggest(value, [*values, DEFAULT], 'choices')}",
                on_key=True,
            )
    left = [value for value in values if value not in node.next]
    if left and DEFAULT not in node.next:
        yield Finding((*at, "next"), f"{', '.join(left)} lead nowhere: add them, or `{DEFAULT}: <node>`")


def check_secrets(tools: Mapping[str, ToolConfig]) -> Iterator[Finding]:
    """No tool option holds a key or a password. Values are not looked at, nor shown."""
    for name, tool in tools.items():
        for option in filter(looks_secret, tool.options):
            message = f"{option!r} does not belong in a file: secrets come from the environment or .env"
            yield Finding(("tools", name, option), message, on_key=True)


def check_tools(tools: Mapping[str, ToolConfig]) -> Iterator[Finding]:
    """Every tool has an implementation, and only options that it takes. Opens nothing."""
    for name, tool in tools.items():
        try:
            check_tool(tool.use, {key: value for key, value in tool.options.items() if not looks_secret(key)})
        except ToolOptionError as error:
            yield Finding(("tools", name, error.option or "use"), str(error), on_key=error.option is not None)


def check_paths(flow: FlowConfig) -> Iterator[Finding]:
    """Every node is reachable, `end` is reachable, and no tool or argument comes before an action was chosen."""
    reached = _reach(flow, lambda node: True)
    for name in flow.nodes:
        if name not in reached and name != END:
            message = f"node {name!r} is never reached from {flow.start!r}: name it in a `next`, or take it out"
            yield Finding(("flow", "nodes", name), message, on_key=True)
    if END not in reached:
        message = f"no path leads to {END!r}, the episode could never finish: name it in a `next`"
        yield Finding(("flow", "nodes"), message, on_key=True)
    no_action = _reach(flow, lambda node: not (isinstance(node, RoleNode) and node.emits in CHOOSES))
    for name in no_action:
        node = flow.nodes.get(name)
        if isinstance(node, ToolNode) or (isinstance(node, RoleNode) and node.emits == "argument"):
            yield Finding(
                ("flow", "nodes", name),
                f"node {name!r} can run before any action was chosen: put a node that emits action or call before it",
                on_key=True,
            )


def check_limits(limits: LimitsConfig, flow: FlowConfig) -> Iterator[Finding]:
    """A forced answer needs a node that writes one."""
    if limits.on_limit != "force_answer":
        return
    for node in flow.role_nodes().values():
        if node.emits == "action" and FINISH in (node.choices or ()):
            after = flow.nodes.get(node.follow(FINISH))
            if isinstance(after, RoleNode) and after.emits == "argument":
                return
    message = f"force_answer needs a node that writes the argument of {FINISH}: use `on_limit: stop`"
    yield Finding(("limits", "on_limit"), message)


def _reach(flow: FlowConfig, through: Callable[[RoleNode | ToolNode], bool]) -> list[str]:
    """Nodes reachable from the start when paths stop behind nodes that `through` refuses, in order found."""
    found: dict[str, None] = {}
    waiting = [flow.start]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = None
        node = flow.nodes.get(name)
        if node is not None and name != END and through(node):
            waiting.extend(node.targets())
    return list(found)


def check_adapters(roles: Mapping[str, RoleConfig], base: BaseConfig, root: Path, team: str) -> Iterator[Finding]:
    """Every adapter folder exists, is one that peft wrote, and was trained on this base. Reads no weights.

    `team`: what `--team` takes for this one.
    """
    for name, role in roles.items():
        if not role.has_adapter:
            continue
        at: Path_ = ("roles", name, "adapter")
        folder = root / role.adapter
        if not folder.is_dir():
            beside = [entry.name for entry in folder.parent.iterdir()] if folder.parent.is_dir() else []
            hint = suggest(folder.name, sorted(beside), f"in {folder.parent}") if beside else ""
            fix = f"train it with `agentrt train --derive --team {team}`, or write `none` to run without an adapter"
            yield Finding(at, f"no adapter folder {folder}{hint}: {fix}")
            continue
        config = folder / "adapter_config.json"
        try:
            trained_on = json.loads(config.read_text(encoding="utf-8"))["base_model_name_or_path"]
        except FileNotFoundError:
            yield Finding(at, f"{folder} holds no adapter_config.json: peft's save_pretrained writes one")
        except (OSError, ValueError, KeyError, TypeError) as error:
            yield Finding(at, f"{config} cannot be used ({type(error).__name__}: {error}): save it again")
        else:
            if trained_on and surely_differ(str(trained_on), base.model):
                yield Finding(
                    at, f"trained on {trained_on}, but base.model is {base.model}: use one trained on this base"
                )
