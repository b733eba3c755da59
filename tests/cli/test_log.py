"""`agentrt log show`: a run in the terminal, and as one page that needs nothing and trusts nothing."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agentrt.config.team import Override, Team
from agentrt.runtime.episode import Runtime
from agentrt.testing import FakeTool, ScriptedEngine
from agentrt_tools import ToolFailed
from tests.crew import CORPUS, short_team

EVIL = '<script>alert("x")</script> & <img src="http://example.org/a.png">'
SCRIPT = ["I look.", "Search", "a", "I look on.", "Search", "b", "So.", "Finish", "Delft", "It is.", "right"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    tools = {"Search": FakeTool("fake.search", {"a": EVIL, "b": ToolFailed("quota", EVIL)})}
    tools |= {name: FakeTool("fake") for name in ("Retrieve", "Lookup")}
    free = Override(("flow", "nodes", "argue", "constrain"), {}, "the test")
    team = Team.load("search", overrides=[free], need_adapters=False)
    with Runtime(team, engine=ScriptedEngine(SCRIPT), tools=tools, out=tmp_path / "runs") as rt:
        rt.run(f"Who? {EVIL}", run_id="one")
    return tmp_path / "runs" / "one"


class Page(HTMLParser):
    """Every tag with its attributes, and the text outside of styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data + "\n"


def test_the_terminal_shows_turns_failures_and_where_tokens_came_from(cli: Any, run: Path) -> None:
    result = cli("log", "show", "one", "--out", str(run.parent))
    assert result.exit_code == 0, result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "1 plan thought I look." in lines
    assert "Search observes FAILED (quota): Search failed (quota). Try another action." in lines
    assert "turn role field read reused recomputed reconstructed new generated TTFT KV" in lines
    first = next(line.split() for line in lines if line.startswith("1 plan thought +"))
    assert set(first[3]) == {"+"}
    assert any(line.startswith("2 plan action =") for line in lines)


@pytest.mark.parametrize(
    ("score", "says"),
    [({"correct": True, "f1": 1.0, "gold": "Delft"}, "right: the answer is Delft (F1 1.00)"), ({"mine": 3}, None)],
)
def test_the_gold_answer_is_that_of_the_run(cli: Any, tmp_path: Path, score: dict[str, Any], says: str | None) -> None:
    with Runtime(
        short_team(),
        engine=ScriptedEngine(["So.", "Finish", "yes", "It is.", "right"]),
        corpus=CORPUS,
        out=tmp_path / "runs",
    ) as rt:
        rt.run("Who?", run_id="one", score=lambda result: score)
    lines = cli("log", "show", "one").stdout.splitlines()
    assert [line for line in lines if "the answer is" in line] == ([] if says is None else [says])


def test_json_is_the_events(cli: Any, run: Path) -> None:
    result = cli("log", "show", str(run), "--json")
    written = (run / "events.jsonl").read_text().splitlines()[1:]
    assert [json.loads(line) for line in result.stdout.splitlines()] == [json.loads(line) for line in written]


def test_the_page_shows_the_run_and_needs_no_other_file(cli: Any, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "pages" / "of a day" / "run.html"
    assert cli("log", "show", str(run), "--html", str(file)).exit_code == 0
    text = file.read_text(encoding="utf-8")
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "b", "div", "span"),
        *("table", "tr", "th", "td"),
    }
    assert not any(name in ("src", "href") or name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    for shown in (EVIL, "I look.", "plan", "Search", "Delft", "1 of 2 tool calls failed."):
        assert shown in page.text
    bars = [attrs for tag, attrs in page.tags if tag == "div" and attrs.get("class") == "bar"]
    assert len(bars) == len(SCRIPT)
    parts = [attrs for tag, attrs in page.tags if tag == "span" and "width" in (attrs.get("style") or "")]
    assert len(parts) == 4 * len(SCRIPT)


def test_a_run_that_was_killed_is_shown_as_far_as_it_came(cli: Any, run: Path, tmp_path: Path) -> None:
    file = run / "events.jsonl"
    file.write_text("\n".join([*file.read_text().splitlines()[:6], '{"event": "tur']))
    assert "I look." in cli("log", "show", str(run)).stdout
    assert cli("log", "show", str(run), "--html", str(tmp_path / "run.html")).exit_code == 0
    assert "The run has not ended." in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_a_run_that_is_not_there_is_named(cli: Any) -> None:
    result = cli("log", "show", "absent")
    assert result.exit_code == 2
    assert "there is no run absent" in result.stderr
