"""Whether a team writes what its adapters were trained on: labels, markers, preamble, actions, wording of tools.

Prompt bytes are part of an adapter. What differs is a problem of the team file; what the data merely lacks is a note.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from agentrt.config.flow import CHOOSES, FINISH, VERDICT_NAME, ToolNode
from agentrt.config.problems import suggest
from agentrt.config.team import Team
from agentrt.errors import Problem
from agentrt.training.texts import Text, TrainingFile

_ALIKE: Final = 0.75
"""From which likeness on a label is taken for another spelling of the team's."""
_RARE: Final = 0.01
"""A name in fewer calls than this share is a slip of whoever wrote the data, not a tool."""
_WORDINGS: Final = {
    "react": re.compile(r"\(Result \d+ / \d+\)|Similar: \[[^'\"\]]"),
    "autoact": re.compile(r"\(Result \d+/\d+\)|Similar: \[['\"]"),
}
"""What only tools of that style tell; see docs/tools.md."""
_WORDED: Final = ("offline.lookup", "wikipedia.lookup", "wikipedia.page")
"""Tools whose observations `_WORDINGS` tells apart."""


class Agreement(NamedTuple):
    problems: list[Problem]
    notes: list[str]


def compare(team: Team, data: TrainingFile) -> Agreement:
    """Hold a team against what is in a training file."""
    lines = _Lines(team, data.texts)
    problems = [*lines.labels(), *lines.leads(), *lines.preambles(), *lines.brackets()]
    calls = [*data.calls, *lines.calls()]
    problems += _unknown_actions(team, calls)
    problems += _wordings(team, data.observations or data.texts)
    return Agreement(problems, _notes(team, calls, data))


class _Lines:
    """The labelled lines of texts. A line begins where a text does, behind a line end, or behind the end marker."""

    def __init__(self, team: Team, texts: Sequence[Text]) -> None:
        self._team, self._texts = team, texts
        dialect, emits = team.dialect, {node.emits for node in team.flow.role_nodes().values()}
        tools = any(isinstance(node, ToolNode) for node in team.flow.nodes.values())
        used = {
            "question": True,
            "thought": "thought" in emits,
            "action": bool(emits & {"action", "call", "verdict"}),
            "observation": tools,
        }
        self._labels = {name: getattr(dialect, name) for name, is_used in used.items() if is_used}
        self._begin = rf"(?:\A|(?<=\n)|(?<={re.escape(dialect.end)}))"
        self._spelled = {name: self._spellings(label) for name, label in self._labels.items()} if texts else {}

    def labels(self) -> Iterator[Problem]:
        """Labels that the data spells otherwise, or does not have."""
        for name, spelled in self._spelled.items():
            label, path = self._labels[name], ("dialect", name)
            others = [
                f"{other!r} ({len(places)} times, first in {places[0]})"
                for other, places in spelled.items()
                if other != label
            ]
            tail = f"train again, or write the label as the data has it, `{name}:` in `dialect`"
            if others:
                times = f"{len(spelled[label])} times {label!r}, and " if label in spelled else f"not {label!r}, but "
                yield self._team.problem(path, f"the training data has {times}{' and '.join(others)}: {tail}")
            elif not spelled:
                yield self._team.problem(path, f"the training data never has the label {label!r}: {tail}")

    def leads(self) -> Iterator[Problem]:
        """Labels behind which the data does not go on with the lead."""
        lead = self._team.dialect.lead
        for label in self._labels.values():
            behind = [
                (match[1], place)
                for place, text in self._texts
                for match in re.finditer(rf"{self._begin}{re.escape(label)}([^\n]+)", text)
            ]
            other = [place for rest, place in behind if rest[: len(rest) - len(rest.lstrip())] != lead]
            if len(other) * 2 > len(behind):
                yield self._team.problem(
                    ("dialect", "lead"),
                    f"behind {label!r} the training data does not go on with the lead {lead!r} "
                    f"({len(other)} of {len(behind)} times, first in {other[0]}): train again, or change `lead`",
                )

    def preambles(self) -> Iterator[Problem]:
        """Another text before the question than the team's."""
        if "question" not in self._spelled:
            return
        own, others = self._team.preamble.strip(), Counter[str]()
        first, counted = "", 0
        for place, text in self._texts:
            asked = re.search("|".join(map(re.escape, self._spelled["question"])) or r"(?!)", text)
            if asked is None:
                continue
            counted += 1
            before = text[: asked.start()].strip()
            if before != own:
                first = first or place
                others[before] += 1
        if others and sum(others.values()) * 2 > counted:
            told = others.most_common(1)[0][0]
            same = _first_difference(told, own)
            yield self._team.problem(
                ("preamble",),
                f"the training data begins otherwise ({sum(others.values())} of {counted} texts, first in {first}), "
                f"from character {same + 1} on with {_short(told[same:])!r}, not {_short(own[same:])!r}: train again, "
                "or write its text here",
            )

    def brackets(self) -> Iterator[Problem]:
        """Another bracket behind the names of actions."""
        opened = Counter(opener for _, opener, _ in self._called() if opener)
        opener, count = opened.most_common(1)[0] if opened else ("", 0)
        if opener and not self._team.dialect.open.startswith(opener):
            yield self._team.problem(
                ("dialect", "open"),
                f"the training data opens arguments with {opener!r} ({count} times), not {self._team.dialect.open!r}: "
                "train again, or write `open:` and `close:` in `dialect` as the data has them",
            )

    def calls(self) -> list[tuple[str, str]]:
        return [(name, place) for name, _, place in self._called()]

    def _called(self) -> Iterator[tuple[str, str, str]]:
        """Name, the bracket behind it if there is one, and place, of every action line that begins with a name."""
        labels = "|".join(map(re.escape, self._spelled.get("action", {})))
        if not labels:
            return
        pattern = re.compile(rf"{self._begin}(?:{labels})[ \t]*([^\W\d]\w*)[ \t]*(?:([\[({{<])|$|(?=\n))")
        for place, text in self._texts:
            for match in pattern.finditer(text):
                yield match[1], match[2] or "", place

    def _spellings(self, label: str) -> dict[str, list[str]]:
        """What the data writes for a label, itself or something like it -> places, of what begins a line."""
        last = re.escape(label[-1])
        form = rf"[^\s{last}][^\n{last}]{{0,30}}{last}" if not label[-1].isalnum() else r"\w+"
        found: dict[str, list[str]] = {}
        for place, text in self._texts:
            for match in re.finditer(self._begin + f"({form})", text):
                found.setdefault(match[1], []).append(place)
        own = set(self._labels.values()) - {label}
        return {
            spelled: places
            for spelled, places in found.items()
            if spelled == label or (spelled not in own and SequenceMatcher(None, spelled, label).ratio() >= _ALIKE)
        }


def _unknown_actions(team: Team, calls: Sequence[tuple[str, str]]) -> Iterator[Problem]:
    known = _actions(team)
    count = Counter(name for name, _ in calls)
    for name, times in count.items():
        if name not in known and times > max(1, _RARE * len(calls)):
            place = next(place for called, place in calls if called == name)
            yield team.problem(
                ("tools",),
                f"the training data calls {name!r} ({times} of {len(calls)} times, first in {place}), which no node "
                f"offers{suggest(name, known, 'offered')}: train again, or name a tool so",
                on_key=True,
            )


def _wordings(team: Team, observed: Sequence[Text]) -> Iterator[Problem]:
    """Tools that word their observations in another style than the data's."""
    places = {
        style: [place for place, text in observed if pattern.search(text)] for style, pattern in _WORDINGS.items()
    }
    style = max(places, key=lambda each: len(places[each]))
    if not places[style]:
        return
    for name, tool in team.tools.items():
        own = str(tool.options.get("style", "react"))
        if tool.use in _WORDED and own != style:
            yield team.problem(
                ("tools", name, "style") if "style" in tool.options else ("tools", name, "use"),
                f"{tool.use} words observations as {own}, the training data as {style} "
                f"({len(places[style])} texts, first in {places[style][0]}): train again, or use `style: {style}` "
                "of the wikipedia tools",
            )


def _notes(team: Team, calls: Sequence[tuple[str, str]], data: TrainingFile) -> list[str]:
    called = {name for name, _ in calls}
    notes = [f"the training data never calls {name}" for name in _actions(team) if calls and name not in called]
    if not data.texts:
        notes.append("the training data tells fields, not prompts: labels, markers and preamble were not compared")
    return notes


def _actions(team: Team) -> list[str]:
    """Names that may stand behind the action's label."""
    emits = {node.emits for node in team.flow.role_nodes().values()}
    verdict = [VERDICT_NAME] if "verdict" in emits else []
    return [*team.flow.actions(), *verdict] if emits & {*CHOOSES} else verdict or [FINISH]


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
