"""The shipped data is found."""

from agentrt.builtin import agents_dir, built_in_teams, configs_dir


def test_the_data_folders_exist() -> None:
    assert agents_dir().is_dir()
    assert configs_dir().is_dir()


def test_built_in_teams_are_the_folders_with_a_team_file() -> None:
    assert built_in_teams() == sorted(file.parent.name for file in agents_dir().glob("*/team.yaml"))
    assert "search" in built_in_teams()
