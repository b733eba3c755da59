r"""The text of an episode, segment by segment: role fields -> text -> token ids.

The same code renders training examples and live episodes. Each segment is tokenised by itself and never again, so
a trajectory only ever grows at its end. Knows nothing of teams, engines or graphs.

    <preamble>\n
    Question: <question>\n
    Thought:| I need ...\n           "|" is where a label (context) ends and a field (generated) starts
    Action:| Search                  an action has no end marker: what follows it ends it
    [| the query]
    \nObservation: <text>\n
    Thought:| ...\n
    Action:| Finish[| answer]\n
    Thought:| ...\n
    Action: Reflect[| right]\n

A call is a whole action line, written in one go by adapters that were trained so: "Action:| Search[query]\n".
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from agentrt.config.flow import VERDICT_NAME, Emits
from agentrt.config.sections import DialectConfig
from agentrt.runtime.ports import Tokenizer
from agentrt_tools import neutralise, one_line

_WHOLE_LINES: Final = ("thought", "call")
"""Fields that end their line themselves."""


class FieldText(NamedTuple):
    r"""What a model wrote, read back.

    text: the field itself, without lead and terminator, stripped.
    tail: what the trajectory already holds beyond the field: the "\n" of a merged token "]\n", or the "[" that ended
        an action. The next context segment leaves it out.
    closed: whether the field has its terminator. One cut off by its token limit has none, nor has an argument that
        the end of the line ended.
    """

    text: str
    tail: str
    closed: bool


class Renderer:
    """Renders every segment of an episode under one dialect and one tokenizer.

    All methods that return token ids render context, except `field`, which renders what the model is to write.
    `tail` is text that the trajectory already holds at its end (see FieldText).
    """

    def __init__(self, dialect: DialectConfig, tokenizer: Tokenizer) -> None:
        self.dialect = dialect
        self.tokenizer = tokenizer
        self._window = max(len(marker) for marker in (dialect.open, dialect.close, dialect.end)) + 1

    def preamble(self, text: str) -> list[int]:
        """The instruction shared by all roles; ends with one end marker. Empty text renders nothing."""
        return self._line(text)

    def instruction(self, text: str) -> list[int]:
        """A role's own instruction, on a line of its own at the start of its turn."""
        return self._line(text)

    def question(self, text: str) -> list[int]:
        d = self.dialect
        return self._encode(f"{d.question}{d.lead}{one_line(text)}{d.end}")

    def label(self, emits: Emits, tail: str = "") -> list[int]:
        """The label before a field. An argument's label is the open marker, right behind the action's name."""
        return self._encode(self.label_text(emits), tail)

    def label_text(self, emits: Emits) -> str:
        d = self.dialect
        match emits:
            case "thought":
                return d.thought
            case "action" | "call":
                return d.action
            case "argument":
                return d.open
            case "verdict":
                return f"{d.action}{d.lead}{VERDICT_NAME}{d.open}"

    def restated(self, action: str) -> list[int]:
        """An action already chosen, said again on a new line, for an argument that cannot follow it directly."""
        return self._encode(f"{self.dialect.action}{self.dialect.lead}{action}")

    def safe(self, text: str) -> str:
        """Text from outside as one line that forges nothing: no label, end marker or token of its own is left in it.

        Ordinary text stays as it is, and so do its tokens.
        """
        d = self.dialect
        marks = [*self.tokenizer.marks, *([d.end] if d.end.strip() else [])]
        return neutralise(text, (d.question, d.thought, d.action, d.observation), marks)

    def observation(self, text: str, tail: str = "", *, behind: Emits = "argument") -> list[int]:
        """A tool's answer behind an argument, whose line it ends first, or behind a call, which ended its own."""
        d = self.dialect
        end = "" if behind in _WHOLE_LINES else d.end
        return self._encode(f"{end}{d.observation}{d.lead}{one_line(text)}{d.end}", tail)

    def after(self, emits: Emits, tail: str = "") -> list[int]:
        """What ends a field's line where neither its argument nor an observation follows; nothing for whole lines."""
        return self._encode("" if emits in _WHOLE_LINES else self.dialect.end, tail)

    def closing(self, emits: Emits) -> list[int]:
        """The terminator of a field that its token limit cut off, supplied as context."""
        return self._encode(self.terminator(emits))

    def field(self, emits: Emits, text: str) -> list[int]:
        """What the model writes for a field: lead, text, terminator. `text` is one line, as read back."""
        return self._encode(f"{self.dialect.lead}{text}{self.terminator(emits)}")

    def terminator(self, emits: Emits) -> str:
        """The marker that belongs to a field and is generated with it; an action has none."""
        match emits:
            case "thought" | "call":
                return self.dialect.end
            case "action":
                return ""
            case "argument" | "verdict":
                return self.dialect.close

    def stops(self, emits: Emits) -> tuple[str, ...]:
        """Strings that end a freely generated field."""
        d = self.dialect
        match emits:
            case "thought" | "call":
                return (d.end,)
            case "action":
                return (d.open, d.end)
            case "argument" | "verdict":
                return (d.close, d.end)

    def stopped(self, emits: Emits, generated: Sequence[int]) -> bool:
        """Whether the newest tokens end the field: by a stop string, even inside a merged token, or the end of text."""
        if generated[-1] in self.tokenizer.eos_ids:
            return True
        recent = self.tokenizer.decode(list(generated[-self._window :]))
        return any(stop in recent for stop in self.stops(emits))

    def read(self, emits: Emits, generated: Sequence[int]) -> FieldText:
        """Read a freely generated field back: it ends at its first stop string, or at the end of text."""
        ended = generated[-1:] and generated[-1] in self.tokenizer.eos_ids
        text = self.tokenizer.decode(list(generated[:-1] if ended else generated))
        found = [(at, stop) for stop in self.stops(emits) if (at := text.find(stop)) >= 0]
        if not found:
            return FieldText(text.strip(), "", False)
        at, stop = min(found)
        # A line end that closes a field in place of its bracket, and whatever ends an action, belong to what follows.
        tail = text[at + len(stop) :] if stop == self.terminator(emits) else text[at:]
        return FieldText(text[:at].strip(), tail, emits == "action" or stop == self.terminator(emits))

    def _line(self, text: str) -> list[int]:
        text = text.rstrip()
        return self._encode(text + self.dialect.end) if text else []

    def _encode(self, text: str, tail: str = "") -> list[int]:
        text = "" if tail.startswith(text) else text.removeprefix(tail)
        return self.tokenizer.encode(text) if text else []
