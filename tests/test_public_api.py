"""The public names: which they are, where they come from, and that importing the package costs next to nothing."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import agentrt
from agentrt import errors

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "peft", "langgraph", "pydantic", "numpy", "yaml", "requests", "typer")

NAMES = {
    *("Runtime", "Team", "EpisodeResult", "CancelToken"),
    *("Engine", "EngineConfig", "EngineHealth", "Session", "Turn", "TurnResult", "Sampling", "SCHEMES"),
    *("AgentrtError", "UsageError", "ConfigError", "DataError", "SchemeError", "RunBusyError"),
    "ToolHealthError",
    *("ResourceError", "BackboneError", "AdapterError", "CacheFullError"),
    *("EngineError", "EngineClosedError", "ForkedError", "QueueFullError", "SessionBusyError", "TurnCancelledError"),
}


def test_the_exported_names_are_these() -> None:
    assert set(agentrt.__all__) == NAMES
    assert len(agentrt.__all__) == len(NAMES)
    assert set(dir(agentrt)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_exported_name_is_the_one_its_module_defines(name: str) -> None:
    exported = getattr(agentrt, name)
    if name == "SCHEMES":
        assert {"non_shared", "full_shared", "pre_lr_shared", "rebase_shared"} <= set(exported)
        return
    assert exported.__name__ == name
    assert getattr(sys.modules[exported.__module__], name) is exported


def test_every_exported_error_is_of_the_documented_tree() -> None:
    exported = [value for name in NAMES if isinstance(value := vars(errors).get(name), type)]
    assert all(issubclass(error, agentrt.AgentrtError) for error in exported)
    assert len(exported) == sum(name.endswith("Error") for name in NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Runtme'"):
        agentrt.Runtme  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_the_one_that_is_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert agentrt.__version__ == project["version"]


def test_import_agentrt_imports_nothing_heavy() -> None:
    code = "import sys, agentrt; print([name for name in sys.argv[1:] if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_name_is_loaded_by_its_first_use_and_no_other() -> None:
    code = "import sys, agentrt; agentrt.Team; print('torch' in sys.modules, 'Engine' in vars(agentrt))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False False"


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    source = ast.parse(Path(agentrt.__file__).read_text(encoding="utf-8"))
    guard = next(node for node in source.body if isinstance(node, ast.If))
    assert ast.unparse(guard.test) == "TYPE_CHECKING"
    seen = {name.name: node.module for node in guard.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert seen == agentrt._HOMES
    hidden = next(node for node in ast.walk(source) if getattr(node, "name", "") == "__getattr__")
    assert hidden not in source.body, "at module level it would hide misspelled names from type checkers"
