"""The wheel, as a user meets it: what it puts into site-packages, and that it runs there without the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"agentrt", "agentrt_tools", "agentrt_kernels"}
GENERIC = ("agents", "tools", "kernels", "configs", "tests", "docs", "benchmarks")
"""Folders of the checkout. Some are names of other people's packages, so none may become an import name."""


class Installed(NamedTuple):
    """A fresh environment with the wheel in it; the present one lends it the dependencies."""

    python: Path
    site: Path
    neutral: Path
    """An empty folder to start Python in."""

    def run(self, *command: str | Path) -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AGENTRT_"))}
        env["XDG_CONFIG_HOME"] = str(self.neutral)
        done = subprocess.run(command, cwd=self.neutral, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    base = tmp_path_factory.mktemp("fresh")
    venv.create(base, with_pip=False, symlinks=os.name != "nt")
    scheme = {"base": str(base), "platbase": str(base)}
    python = Path(sysconfig.get_path("scripts", "venv", scheme)) / "python"
    site = Path(sysconfig.get_path("purelib", "venv", scheme))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, text=True)
    lent = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "dependencies.pth").write_text("\n".join(lent) + "\n", encoding="utf-8")
    neutral = base / "neutral"
    neutral.mkdir()
    return Installed(python, site, neutral)


def test_the_wheel_holds_three_packages_and_nothing_else(wheel: Path, installed: Installed) -> None:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == PACKAGES
    added = {entry.name for entry in installed.site.iterdir() if not entry.name.endswith((".dist-info", ".pth"))}
    assert added == PACKAGES


def test_the_wheel_ships_every_file_of_agents_and_configs(wheel: Path) -> None:
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("agentrt/_data/")}
    files = (file for folder in ("agents", "configs") for file in (ROOT / folder).rglob("*") if file.is_file())
    assert shipped == {f"agentrt/_data/{file.relative_to(ROOT).as_posix()}" for file in files}
    assert "agentrt/_data/agents/search/team.yaml" in shipped
    assert "agentrt/_data/configs/mini/articles.jsonl" in shipped


def test_packages_are_typed_and_licensed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_every_built_in_team_loads_where_the_wheel_is_installed(installed: Installed) -> None:
    code = (
        "import json, agentrt, agentrt_tools, agentrt_kernels;"
        "from agentrt.builtin import built_in_teams;"
        "files = [m.__file__ for m in (agentrt, agentrt_tools, agentrt_kernels)];"
        "teams = [agentrt.Team.load(name, need_adapters=False) for name in built_in_teams()];"
        "files += [str(place) for team in teams for place in (team.root, *team.adapters().values())];"
        "files += [str(file.resolve(strict=True)) for team in teams for file in team.training_files];"
        "print(json.dumps({'teams': [team.name for team in teams], 'files': files}))"
    )
    found = json.loads(installed.run(installed.python, "-c", code))
    assert set(found["teams"]) == {"science", "search"}
    assert all(Path(file).is_relative_to(installed.site) for file in found["files"]), found["files"]


def test_the_console_script_checks_the_default_team(installed: Installed) -> None:
    script = installed.python.with_name("agentrt")
    assert str(installed.site) in installed.run(script, "roles", "check")


def test_no_folder_of_the_checkout_became_an_import_name(installed: Installed) -> None:
    code = (
        "import importlib.util, json, sys;"
        "specs = {name: importlib.util.find_spec(name) for name in sys.argv[1:]};"
        "places = {n: [s.origin, *(s.submodule_search_locations or [])] for n, s in specs.items() if s};"
        "print(json.dumps(places))"
    )
    places = json.loads(installed.run(installed.python, "-c", code, *GENERIC))
    ours = (str(installed.site), *(str(ROOT / name) for name in GENERIC))
    assert not [place for found in places.values() for place in found if place and place.startswith(ours)]


def test_peft_can_be_imported_with_python_started_in_the_repository_root() -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    code = "import sys; assert sys.path[0] == ''; import peft; print(peft.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "peft", done.stderr
