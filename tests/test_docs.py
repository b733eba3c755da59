"""What the documentation promises: commands and flags exist, examples parse and load, links lead somewhere."""

import importlib
import re
import shlex
from ast import Import, ImportFrom, parse, walk
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from agentrt.cli.main import app
from agentrt.config.team import Override, Team
from agentrt.config.yaml import read_yaml
from agentrt.runtime.episode import Runtime
from agentrt.schemes import SCHEMES
from agentrt.testing import FakeTool, ScriptedEngine

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "kernels").rglob("*.md")])


class Block(NamedTuple):
    """A fenced block of a page; `line` counts from 1."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    every = [Block(page, text.count("\n", 0, match.start()) + 2, match[1], match[2]) for match in found]
    return [block for block in every if block.language in languages]


def commands(page: Path) -> Iterator[str]:
    """`agentrt ...` in console blocks, and in inline code."""
    for block in blocks(page, "console", "bash", "sh"):
        lines = block.text.replace("\\\n", " ").splitlines()
        yield from (line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith("agentrt "))
    yield from re.findall(r"`(agentrt [a-z][^`\n]*)`", page.read_text(encoding="utf-8"))


COMMANDS = sorted({(page.name, command) for page in PAGES for command in commands(page)})
PYTHON = [block for page in PAGES for block in blocks(page, "python")]
TEAM_FILES = [block for page in PAGES for block in blocks(page, "yaml") if block.text.startswith("version:")]
FRAGMENTS = [b for b in blocks(ROOT / "docs" / "roles.md", "yaml") if not b.text.startswith("version:")]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_command_is_one_the_program_takes(page: str, command: str) -> None:
    program = without_effects(get_command(app))
    program.main(shlex.split(command, comments=True)[1:], prog_name="agentrt", standalone_mode=False)


def without_effects(command: Any) -> Any:
    """The command tree with its parsers in place and nothing behind them."""
    command.callback = None
    for inner in getattr(command, "commands", {}).values():
        without_effects(inner)
    return command


def test_the_readme_shows_the_commands_of_the_first_minutes() -> None:
    shown = {command.split()[1] for page, command in COMMANDS if page == "README.md"}
    assert {"run", "models", "doctor", "schemes", "roles", "train", "replay"} <= shown


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_every_python_example_parses_and_imports_what_exists(block: Block) -> None:
    for node in walk(parse(block.text)):
        if isinstance(node, Import):
            assert all(importlib.import_module(name.name) for name in node.names)
        if isinstance(node, ImportFrom):
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, name.name) for name in node.names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    local = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_named_in_code_exists(page: Path) -> None:
    """Paths such as `agentrt/step.py`: from the root, in backticks, with an ending."""
    folders = "|".join(("agentrt", "agents", "benchmarks", "configs", "docs", "kernels", "tests", "tools"))
    named = re.findall(rf"`((?:{folders})/[\w./-]+\.\w+)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_no_page_names_a_path_of_one_machine() -> None:
    assert not [page for page in PAGES if re.search(r"(/work|/home|/root|/tmp)/|~/", page.read_text("utf-8"))]


def test_every_scheme_is_described() -> None:
    text = (ROOT / "docs" / "schemes.md").read_text(encoding="utf-8")
    assert [name for name in SCHEMES if f"### {name}\n" not in text] == []


@pytest.mark.parametrize("block", TEAM_FILES, ids=str)
def test_every_whole_team_file_loads(block: Block, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(block.text, encoding="utf-8")
    assert Team.load(tmp_path / "team.yaml", need_adapters=False).flow.start


def team_with(folder: Path, fragments: list[Block]) -> Team:
    """The default team with the values of `fragments` added, as a reader of the page would add them."""
    overrides = []
    for block in fragments:
        (folder / "fragment.yaml").write_text(block.text, encoding="utf-8")
        data = read_yaml(folder / "fragment.yaml").data
        overrides += [Override(path, value, str(block)) for path, value in leaves(data)]
    return Team.load("search", overrides=overrides, need_adapters=False)


def leaves(data: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


@pytest.mark.parametrize("count", range(1, len(FRAGMENTS) + 1))
def test_every_fragment_of_the_roles_page_loads_on_top_of_those_before(count: int, tmp_path: Path) -> None:
    assert "critic" in team_with(tmp_path, FRAGMENTS[:count]).roles


def play(team: Team, script: list[str]) -> Any:
    tools = {name: FakeTool(name, {"Jaws": "Jaws was directed by a man of Cincinnati."}) for name in team.tools}
    with Runtime(team, engine=ScriptedEngine(script), tools=tools) as rt:
        return rt.run("Where was the director of Jaws born?")


def test_the_critic_of_the_roles_page_takes_its_turn_as_shown(tmp_path: Path) -> None:
    shown = blocks(ROOT / "docs" / "roles.md", "text")[-1].text
    looks, finishes = ["I look.", "Search", "Jaws"], ["I know.", "Finish", "Cincinnati"]
    said = ["Nothing does, the page names the city.", "The page says so.", "right"]
    result = play(team_with(tmp_path, FRAGMENTS[:1]), [*looks, *finishes, *said])
    assert result.text.endswith(shown.rstrip("\n"))
    assert (result.status, result.answer) == ("finished", "Cincinnati")
    assert result.usage["critic"].turns == 1


def test_the_critic_that_decides_can_send_the_team_back(tmp_path: Path) -> None:
    looks, finishes = ["I look.", "Search", "Jaws"], ["I know.", "Finish", "Cincinnati"]
    script = [*looks, *finishes, "Not sure.", "doubtful", *finishes, "Sure.", "sound", "It is.", "right"]
    result = play(team_with(tmp_path, FRAGMENTS), script)
    assert result.verdicts == ("doubtful", "sound", "right")
    assert result.usage["critic"].turns == 4


def test_the_python_example_of_the_roles_page_runs() -> None:
    (block,) = blocks(ROOT / "docs" / "roles.md", "python")
    exec(compile(block.text, str(block), "exec"), {})
