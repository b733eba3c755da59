"""Every YAML file that is shipped loads, and the schema for editors is current."""

import json
from pathlib import Path

import pytest

from agentrt.builtin import agents_dir, built_in_teams, configs_dir
from agentrt.config.schema import team_schema
from agentrt.config.team import Team
from agentrt.config.yaml import read_yaml
from agentrt.errors import UsageError

YAML_FILES = sorted([*agents_dir().rglob("*.yaml"), *configs_dir().rglob("*.yaml")])


@pytest.mark.parametrize("file", YAML_FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_shipped_yaml_file_reads(file: Path) -> None:
    assert read_yaml(file).data


@pytest.mark.parametrize("name", built_in_teams())
def test_every_built_in_team_loads_with_its_adapters(name: str) -> None:
    team = Team.load(name)
    assert team.name == name
    assert all((folder / "adapter_config.json").is_file() for folder in team.adapters().values())
    saved = json.loads(json.dumps(team.values()))
    assert Team.restore(saved, name=name, root=team.root).values() == team.values()


@pytest.mark.parametrize("name", built_in_teams())
def test_the_files_that_a_built_in_team_names_are_there(name: str) -> None:
    team = Team.load(name, need_adapters=False)
    named = [*team.training_files, *([team.corpus_file] if team.corpus_file else [])]
    assert [file for file in named if not file.is_file()] == []


def test_the_default_team_is_built_in() -> None:
    assert "search" in built_in_teams()


def test_a_team_is_found_by_folder_as_well() -> None:
    team = Team.load(agents_dir() / "search", need_adapters=False)
    assert (team.name, team.root) == ("search", agents_dir() / "search")


def test_an_unknown_team_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="did you mean 'search'"):
        Team.load("serach")


def test_the_schema_file_is_current() -> None:
    text = (agents_dir() / "team.schema.json").read_text(encoding="utf-8")
    assert text == team_schema(), "run: agentrt roles schema > agents/team.schema.json"


def test_the_schema_names_every_section_and_allows_own_keys() -> None:
    schema = json.loads(team_schema())
    assert set(schema["properties"]) == set(Team.model_fields)
    assert schema["patternProperties"] == {"^x-": {}}
