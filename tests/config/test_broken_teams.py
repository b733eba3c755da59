"""Every broken team file is refused with file:line:col, a suggestion where one is close, and exit code 2."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from agentrt.config.team import Team
from agentrt.errors import ConfigError

VALID = """\
version: 1
base: {model: smollm2-135m, dtype: auto}
scheme: {name: rebase_shared, schedule: lp}
preamble: Answer in steps.
roles:
  plan: {adapter: adapters/plan}
  action: {adapter: adapters/action}
  reflect: {adapter: none}
tools:
  Search: {use: offline.search, k: 3}
  Lookup: {use: offline.lookup}
flow:
  start: think
  nodes:
    think: {role: plan, emits: thought, next: decide}
    decide: {role: plan, emits: action, choices: [Search, Lookup, Finish], next: argue}
    argue:
      role: action
      emits: argument
      constrain:
        Finish: {span_of: observations, also: [yes, no]}
      next: {Finish: judge, default: use_tool}
    use_tool: {tool: true, next: think}
    judge: {role: reflect, emits: thought, next: verdict}
    verdict: {role: reflect, emits: verdict, choices: [right, wrong], next: {right: end, wrong: think}}
limits: {max_steps: 8}
"""


class Broken(NamedTuple):
    """`old` -> `new` breaks the valid file; the first problem stands at line:column and says all of `says`."""

    old: str
    new: str
    line: int
    column: int
    says: tuple[str, ...]


BROKEN = {
    "unknown top-level key": Broken("limits:", "limit:", 26, 1, ("'limit'", "did you mean 'limits'?")),
    "unknown nested key": Broken("max_steps", "max_stepz", 26, 10, ("did you mean 'max_steps'?",)),
    "unknown key in a role": Broken("adapter: none", "adaptor: none", 8, 13, ("'adaptor'", "did you mean 'adapter'?")),
    "unknown key in a node": Broken(
        "emits: thought, next: d", "emit: thought, next: d", 15, 25, ("did you mean 'emits'?",)
    ),
    "duplicate key": Broken("  Lookup: {", "  Search: {", 11, 3, ("duplicate key 'Search'", "line 10")),
    "duplicate key in a flow mapping": Broken(
        "{tool: true, next", "{tool: true, tool: true, next", 23, 28, ("duplicate key 'tool'",)
    ),
    "tab": Broken("  Lookup: {", "\tLookup: {", 11, 1, ("a tab", "spaces")),
    "unclosed bracket": Broken("[right, wrong]", "[right, wrong", 25, 102, ("not closed",)),
    "two colons in a line": Broken("Answer in steps.", "Note: answer", 4, 15, ("quote the text",)),
    "not a mapping": Broken(VALID, "- version: 1\n", 1, 1, ("must be a mapping",)),
    "empty file": Broken(VALID, "# nothing\n", 1, 1, ("empty",)),
    "two documents": Broken("roles:\n", "---\nroles:\n", 5, 1, ("second document",)),
    "undefined alias": Broken("adapter: adapters/action", "adapter: *plan", 7, 21, ("undefined alias",)),
    "section that is a list": Broken("{max_steps: 8}", "[max_steps]", 26, 9, ("a mapping", "not a list")),
    "section left empty": Broken("limits: {max_steps: 8}", "limits:", 26, 8, ("not nothing",)),
    "version missing": Broken("version: 1\n", "x-note: 1\n", 1, 1, ("'version' is missing",)),
    "version of the future": Broken("version: 1", "version: 2", 1, 10, ("allowed: 1",)),
    "number where text is meant": Broken("Answer in steps.", "42", 4, 11, ("quote it", '"42"')),
    "boolean where text is meant": Broken(
        "choices: [right, wrong]", "choices: [true, wrong]", 25, 56, ("quote it", '"true"')
    ),
    "no where a boolean is meant": Broken("tool: true", "tool: no", 23, 22, ("'no'", "true")),
    "no for none": Broken("adapter: none", "adapter: no", 8, 22, ("adapter folder", "`none`")),
    "null for none": Broken("adapter: none", "adapter: null", 8, 22, ("write `none`",)),
    "text where a number is meant": Broken("max_steps: 8", "max_steps: eight", 26, 21, ("whole number", "'eight'")),
    "fraction where a whole number is meant": Broken("max_steps: 8", "max_steps: 8.5", 26, 21, ("whole",)),
    "limit of zero": Broken("max_steps: 8", "max_steps: 0", 26, 21, ("must be above 0",)),
    "negative time": Broken("max_steps: 8", "time_s: -1", 26, 18, ("must be above 0",)),
    "max_context neither auto nor a number": Broken("max_steps: 8", "max_context: auto0", 26, 23, ("'auto'?",)),
    "unknown dtype": Broken("dtype: auto", "dtype: bfloat", 2, 36, ("did you mean 'bfloat16'?",)),
    "temperature out of range": Broken(
        "{adapter: none}", "{adapter: none, sampling: {temperature: -0.1}}", 8, 52, ("at least 0",)
    ),
    "unknown preset": Broken(
        "{adapter: none}", "{adapter: none, sampling: {preset: autoakt}}", 8, 47, ("did you mean 'autoact'?",)
    ),
    "unknown emits": Broken("emits: argument", "emits: arguments", 19, 14, ("did you mean 'argument'?",)),
    "a list where one word is meant": Broken("role: action\n", "role: [action]\n", 18, 13, ("not a list",)),
    "a word where a list is meant": Broken("[yes, no]", "yes", 21, 47, ("write [yes]",)),
    "a name with a blank": Broken("  Lookup: {", "  Look up: {", 11, 3, ("'Look up' is no name",)),
    "secret in the file": Broken("k: 3", "api_key: abc123", 10, 33, ("'api_key'", "environment")),
    "unknown tool": Broken("use: offline.lookup", "use: offline.lookpu", 11, 17, ("'offline.lookup'?",)),
    "unknown option of a tool": Broken("k: 3", "kk: 3", 10, 33, ("no option 'kk'", "'k'")),
    "wrong type of an option": Broken("k: 3", "k: three", 10, 33, ("must be int",)),
    "undeclared role": Broken("role: action\n", "role: acton\n", 18, 13, ("did you mean 'action'?",)),
    "undeclared tool": Broken("choices: [Search,", "choices: [Serch,", 16, 51, ("did you mean 'Search'?",)),
    "undeclared node": Broken("default: use_tool", "default: usetool", 22, 38, ("did you mean 'use_tool'?",)),
    "undeclared start": Broken("start: think", "start: thnk", 13, 10, ("did you mean 'think'?",)),
    "start missing": Broken("  start: think\n", "", 12, 1, ("'start' is missing",)),
    "unreachable node": Broken("next: verdict}", "next: end}", 25, 5, ("'verdict' is never reached",)),
    "no way to the end": Broken("right: end", "right: think", 14, 3, ("no path leads to 'end'",)),
    "reserved node": Broken("    use_tool: {", "    end: {", 22, 38, ("'use_tool' is not declared",)),
    "tool before any action": Broken("start: think", "start: use_tool", 23, 5, ("before any action",)),
    "branch that does not cover the choices": Broken(
        "{right: end, wrong: think}", "{right: end}", 25, 77, ("wrong lead nowhere", "default")
    ),
    "branch that is never taken": Broken("{right: end", "{rigth: end, right: end", 25, 78, ("did you mean 'right'?",)),
    "action branch that is never taken": Broken("{Finish: judge", "{Finnish: judge", 22, 14, ("'Finish'?",)),
    "constraint on an action nobody chooses": Broken("Finish: {span", "Finsh: {span", 21, 9, ("'Finish'?",)),
    "constraint without a rule": Broken("span_of: observations, ", "", 21, 17, ("`span_of:`",)),
    "constraint on a thought": Broken(
        "emits: thought, next: v",
        "emits: thought, constrain: {Finish: {span_of: question}}, next: v",
        24,
        44,
        ("arguments",),
    ),
    "ending of an argument": Broken(
        "emits: argument\n",
        "emits: argument\n      after: {It is: {span_of: question}}\n",
        20,
        7,
        ("`after` is for thoughts",),
    ),
    "ending without a rule": Broken(
        "emits: thought, next: v", "emits: thought, after: {It is: {also: [a]}}, next: v", 24, 59, ("`span_of:`",)
    ),
    "words with a blank behind them": Broken(
        "emits: thought, next: v",
        'emits: thought, after: {"It is ": {span_of: question}}, next: v',
        24,
        52,
        ("leave out the blanks",),
    ),
    "unknown list of choices": Broken(
        "{span_of: observations, also: [yes, no]}", "{choices: optoins}", 21, 27, ("did you mean 'options'?",)
    ),
    "action without choices": Broken("choices: [Search, Lookup, Finish], ", "", 16, 13, ("are missing",)),
    "choices of a thought": Broken(
        "emits: thought, next: v", "emits: thought, choices: [a], next: v", 24, 44, ("free text",)
    ),
    "choice listed twice": Broken("Search, Lookup, F", "Search, Search, F", 16, 59, ("listed twice",)),
    "branch behind a thought": Broken("next: verdict}", "next: {default: verdict}}", 24, 50, ("decides nothing",)),
    "stop string in a label": Broken(
        "preamble:", 'dialect: {thought: "Thought]"}\npreamble:', 4, 20, ("close marker ']'",)
    ),
    "two labels alike": Broken(
        "preamble:", 'dialect: {thought: "Action:"}\npreamble:', 4, 10, ("thought", "make them differ")
    ),
    "label with a trailing blank": Broken(
        "preamble:", 'dialect: {thought: "Thought: "}\npreamble:', 4, 20, ("`lead`",)
    ),
    "marker in a choice": Broken("[right, wrong]", '[right, "wrong]"]', 25, 63, ("close marker",)),
    "parser on a node that is no call": Broken(
        "emits: action, choices", "emits: action, parser: lenient, choices", 16, 41, ("`parser` is for calls",)
    ),
    "unknown grammar": Broken(
        "emits: action, choices", "emits: call, parser: lenent, choices", 16, 47, ("did you mean 'lenient'?",)
    ),
    "call that leads to no tool": Broken(
        "emits: action, choices", "emits: call, choices", 16, 80, ("a call leads to a tool node",)
    ),
    "unknown wording": Broken(
        "{use: offline.lookup}", "{use: wikipedia.lookup, style: bing}", 11, 35, ("one of react, autoact",)
    ),
    "missing option of a tool": Broken(
        "{use: offline.lookup}", "{use: scienceqa.image}", 11, 17, ("add `captions:` here",)
    ),
    "missing adapter folder": Broken(
        "adapters/plan", "adapters/plam", 6, 19, ("did you mean 'plan'?", "agentrt train --derive --team")
    ),
    "folder that is no adapter": Broken("adapters/plan", "adapters", 6, 19, ("adapter_config.json",)),
    "adapter of another base": Broken("model: smollm2-135m", "model: Qwen/Qwen3-0.6B", 6, 19, ("trained on",)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("plan", "action"):
        adapter = tmp_path / "adapters" / name
        adapter.mkdir(parents=True)
        config = {"base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct"}
        (adapter / "adapter_config.json").write_text(json.dumps(config))
    return tmp_path


def write(folder: Path, text: str) -> Path:
    file = folder / "team.yaml"
    file.write_text(text)
    return file


def test_the_unbroken_file_loads(folder: Path) -> None:
    team = Team.load(write(folder, VALID))
    assert team.adapters() == {"plan": folder / "adapters/plan", "action": folder / "adapters/action"}
    assert [team.adapter_name(role) for role in team.roles] == ["plan", "action", ""]
    assert team.flow.nodes["verdict"].follow("wrong") == "think"
    assert team.flow.nodes["argue"].follow("Search") == "use_tool"
    assert team.flow.nodes["argue"].constrain["Finish"].also == ("yes", "no")


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_refused_at_its_line_and_column(broken: Broken, folder: Path) -> None:
    assert broken.old in VALID
    file = write(folder, VALID.replace(broken.old, broken.new, 1))
    with pytest.raises(ConfigError) as caught:
        Team.load(file)
    problem = caught.value.problems[0]
    assert problem.file == str(file)
    assert str(problem).startswith(f"{file}:{broken.line}:{broken.column}: ")
    for words in broken.says:
        assert words in problem.message
    assert caught.value.exit_code == 2
