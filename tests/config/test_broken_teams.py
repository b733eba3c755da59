"""Every broken team file is refused with file:line:col, a suggestion where one is close, and exit code 2."""

import json
from pathlib import Path

import pytest

from agentrt.config.team import Team
from agentrt.errors import ConfigError

from .broken import VALID, Broken
from .broken_fields import BROKEN_FIELDS

BROKEN = BROKEN_FIELDS | {
    "unknown top-level key": Broken("limits:", "limit:", 26, 1, "unknown key 'limit'", "did you mean 'limits'?"),
    "unknown nested key": Broken(
        "max_steps", "max_stepz", 26, 10, "unknown key 'max_stepz'", "did you mean 'max_steps'?"
    ),
    "unknown key in a role": Broken(
        "adapter: none", "adaptor: none", 8, 13, "unknown key 'adaptor'", "did you mean 'adapter'?"
    ),
    "unknown key in a node": Broken(
        "emits: thought, next: d", "emit: thought, next: d", 15, 25, "unknown key 'emit'", "did you mean 'emits'?"
    ),
    "duplicate key": Broken(
        "  Lookup: {", "  Search: {", 11, 3, "duplicate key 'Search' (first in line 10)", "keep one"
    ),
    "duplicate key in a flow mapping": Broken(
        "{tool: true, next", "{tool: true, tool: true, next", 23, 28, "duplicate key 'tool'", "keep one"
    ),
    "tab": Broken("  Lookup: {", "\tLookup: {", 11, 1, "a tab", "indent with spaces"),
    "unclosed bracket": Broken("[right, wrong]", "[right, wrong", 25, 102, "not closed", "add a bracket or a comma"),
    "two colons in a line": Broken(
        "Answer in steps.", "Note: answer", 4, 15, "a second `: ` in one line", "quote the text"
    ),
    "not a mapping": Broken(VALID, "- version: 1\n", 1, 1, "must be a mapping", "`key: value` lines"),
    "empty file": Broken(VALID, "# nothing\n", 1, 1, "the file is empty", "`key: value` lines are expected"),
    "two documents": Broken("roles:\n", "---\nroles:\n", 5, 1, "second document", "move it to a file of its own"),
    "undefined alias": Broken(
        "adapter: adapters/action", "adapter: *plan", 7, 21, "undefined alias", "needs its anchor `&name` earlier"
    ),
    "section that is a list": Broken(
        "{max_steps: 8}", "[max_steps]", 26, 9, "not a list", "a mapping (`key: value`) is expected"
    ),
    "section left empty": Broken("limits: {max_steps: 8}", "limits:", 26, 8, "not nothing", "leave the key out"),
    "version missing": Broken("version: 1\n", "x-note: 1\n", 1, 1, "'version' is missing", "add `version:` here"),
    "version of the future": Broken("version: 1", "version: 2", 1, 10, "2 is not allowed", "allowed: 1"),
    "number where text is meant": Broken("Answer in steps.", "42", 4, 11, "42 is a number", 'quote it, "42"'),
    "boolean where text is meant": Broken(
        "choices: [right, wrong]", "choices: [true, wrong]", 25, 56, "true is a boolean", 'quote it, "true"'
    ),
    "no where a boolean is meant": Broken("tool: true", "tool: no", 23, 22, "'no' is not allowed", "allowed: true"),
    "no for none": Broken(
        "adapter: none", "adapter: no", 8, 22, "no adapter folder", "write `none` to run without an adapter"
    ),
    "null for none": Broken("adapter: none", "adapter: null", 8, 22, "adapter:", "write `none`"),
    "text where a number is meant": Broken(
        "max_steps: 8", "max_steps: eight", 26, 21, "not 'eight'", "a whole number is expected"
    ),
    "fraction where a whole number is meant": Broken(
        "max_steps: 8", "max_steps: 8.5", 26, 21, "not 8.5", "a whole number is expected"
    ),
    "limit of zero": Broken("max_steps: 8", "max_steps: 0", 26, 21, "not 0", "must be above 0"),
    "negative time": Broken("max_steps: 8", "time_s: -1", 26, 18, "not -1", "must be above 0"),
    "max_context neither auto nor a number": Broken(
        "max_steps: 8", "max_context: auto0", 26, 23, "'auto0' is not allowed", "did you mean 'auto'?"
    ),
    "unknown dtype": Broken(
        "dtype: auto", "dtype: bfloat", 2, 36, "'bfloat' is not allowed", "did you mean 'bfloat16'?"
    ),
    "temperature out of range": Broken(
        "{adapter: none}", "{adapter: none, sampling: {temperature: -0.1}}", 8, 52, "not -0.1", "must be at least 0"
    ),
    "unknown preset": Broken(
        "{adapter: none}",
        "{adapter: none, sampling: {preset: autoakt}}",
        8,
        47,
        "'autoakt' is not allowed",
        "did you mean 'autoact'?",
    ),
    "unknown emits": Broken(
        "emits: argument", "emits: arguments", 19, 14, "'arguments' is not allowed", "did you mean 'argument'?"
    ),
    "a list where one word is meant": Broken(
        "role: action\n", "role: [action]\n", 18, 13, "not a list", "text is expected"
    ),
    "a word where a list is meant": Broken(
        "[yes, no]", "yes", 21, 47, "a list is expected, not the text 'yes'", "write [yes]"
    ),
    "a name with a blank": Broken(
        "  Lookup: {", "  Look up: {", 11, 3, "'Look up' is no name", "a letter first, then letters, digits"
    ),
    "secret in the file": Broken(
        "k: 3", "api_key: abc123", 10, 33, "'api_key' does not belong in a file", "come from the environment or .env"
    ),
    "unknown tool": Broken(
        "use: offline.lookup",
        "use: offline.lookpu",
        11,
        17,
        "there is no tool 'offline.lookpu'",
        "did you mean 'offline.lookup'?",
    ),
    "unknown option of a tool": Broken("k: 3", "kk: 3", 10, 33, "no option 'kk'", "did you mean 'k'?"),
    "wrong type of an option": Broken("k: 3", "k: three", 10, 33, "not 'three'", "must be int"),
    "undeclared role": Broken(
        "role: action\n", "role: acton\n", 18, 13, "role 'acton' is not declared", "did you mean 'action'?"
    ),
    "undeclared tool": Broken(
        "choices: [Search,", "choices: [Serch,", 16, 51, "action 'Serch' is no declared tool", "did you mean 'Search'?"
    ),
    "undeclared node": Broken(
        "default: use_tool", "default: usetool", 22, 38, "node 'usetool' is not declared", "did you mean 'use_tool'?"
    ),
    "undeclared start": Broken(
        "start: think", "start: thnk", 13, 10, "node 'thnk' is not declared", "did you mean 'think'?"
    ),
    "start missing": Broken("  start: think\n", "", 12, 1, "'start' is missing", "add `start:` here"),
    "unreachable node": Broken(
        "next: verdict}", "next: end}", 25, 5, "'verdict' is never reached", "name it in a `next`, or take it out"
    ),
    "no way to the end": Broken("right: end", "right: think", 14, 3, "no path leads to 'end'", "name it in a `next`"),
    "reserved node": Broken(
        "    use_tool: {", "    end: {", 22, 38, "'use_tool' is not declared", "nodes: think, decide"
    ),
    "tool before any action": Broken(
        "start: think",
        "start: use_tool",
        23,
        5,
        "can run before any action was chosen",
        "put a node that emits action or call before it",
    ),
    "branch that does not cover the choices": Broken(
        "{right: end, wrong: think}", "{right: end}", 25, 77, "wrong lead nowhere", "add them, or `default: <node>`"
    ),
    "branch that is never taken": Broken(
        "{right: end", "{rigth: end, right: end", 25, 78, "'rigth' is never chosen here", "did you mean 'right'?"
    ),
    "action branch that is never taken": Broken(
        "{Finish: judge", "{Finnish: judge", 22, 14, "'Finnish' is never chosen here", "did you mean 'Finish'?"
    ),
    "stop string in a label": Broken(
        "preamble:",
        'dialect: {thought: "Thought]"}\npreamble:',
        4,
        20,
        "the label 'Thought]' contains the close marker ']'",
        "change one of them",
    ),
    "two labels alike": Broken(
        "preamble:",
        'dialect: {thought: "Action:"}\npreamble:',
        4,
        10,
        "action and thought are both 'Action:'",
        "make them differ",
    ),
    "label with a trailing blank": Broken(
        "preamble:", 'dialect: {thought: "Thought: "}\npreamble:', 4, 20, "'Thought: ' ends in a blank", "leave it out"
    ),
    "marker in a choice": Broken(
        "[right, wrong]",
        '[right, "wrong]"]',
        25,
        63,
        "'wrong]' contains the close marker",
        "write it without, or choose another marker",
    ),
    "parser on a node that is no call": Broken(
        "emits: action, choices",
        "emits: action, parser: lenient, choices",
        16,
        41,
        "`parser` is for calls, this node emits action",
        "leave it out",
    ),
    "unknown grammar": Broken(
        "emits: action, choices",
        "emits: call, parser: lenent, choices",
        16,
        47,
        "'lenent' is not allowed",
        "did you mean 'lenient'?",
    ),
    "call that leads to no tool": Broken(
        "emits: action, choices",
        "emits: call, choices",
        16,
        80,
        "a call leads to a tool node on at least one branch",
        "`{tool: true, next: ...}`",
    ),
    "unknown wording": Broken(
        "{use: offline.lookup}", "{use: wikipedia.lookup, style: bing}", 11, 35, "not 'bing'", "one of react, autoact"
    ),
    "missing option of a tool": Broken(
        "{use: offline.lookup}", "{use: scienceqa.image}", 11, 17, "needs the option 'captions'", "add `captions:` here"
    ),
    "missing adapter folder": Broken(
        "adapters/plan", "adapters/plam", 6, 19, "no adapter folder", "did you mean 'plan'?"
    ),
    "folder that is no adapter": Broken(
        "adapters/plan", "adapters", 6, 19, "holds no adapter_config.json", "peft's save_pretrained writes one"
    ),
    "adapter of another base": Broken(
        "model: smollm2-135m",
        "model: Qwen/Qwen3-0.6B",
        6,
        19,
        "trained on HuggingFaceTB/SmolLM2-135M-Instruct",
        "use one trained on this base",
    ),
    "lead that ends a field": Broken(
        "preamble:",
        'dialect: {lead: " ["}\npreamble:',
        4,
        17,
        "the lead ' [' contains the open marker '['",
        "change one",
    ),
    "stop string in a forced argument": Broken(
        "also: [yes, no]", 'also: [yes, "no]"]', 21, 53, "'no]' contains the close marker ']'", "write it without"
    ),
    "stop string in the name of a verdict": Broken(
        "preamble:",
        "dialect: {open: flect}\npreamble:",
        4,
        10,
        "'Reflect', which contains the open marker",
        "another marker",
    ),
    "end marker of words in the preamble": Broken(
        "preamble: Answer in steps.",
        "dialect: {end: STOP}\npreamble: Write STOP.",
        5,
        11,
        "contains the end marker 'STOP'",
        "write it without",
    ),
    "end marker of words in an instruction": Broken(
        "preamble: Answer in steps.\nroles:\n  plan: {adapter: adapters/plan}",
        "dialect: {end: STOP}\nroles:\n  plan: {adapter: adapters/plan, instruction: Then STOP.}",
        6,
        47,
        "contains the end marker 'STOP'",
        "write it without",
    ),
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
    assert broken.what in problem.message
    assert broken.fix in problem.message.replace(broken.what, "", 1)
    assert caught.value.exit_code == 2
