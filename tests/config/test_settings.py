"""Precedence of settings, their origins, and the errors of each source."""

from pathlib import Path

import pytest

from agentrt.config.settings import Resolved, resolve
from agentrt.errors import ConfigError


def settle(
    *,
    flags: dict[str, object] | None = None,
    sets: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
    files: tuple[Path, ...] = (),
) -> Resolved:
    return resolve(flags=flags or {}, sets=sets, environ=environ or {}, files=files)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_stand_where_nothing_is_said(tmp_path: Path) -> None:
    resolved = settle(files=(tmp_path / "absent.yaml",))
    assert resolved.settings.team == "search"
    assert set(resolved.origins.values()) == {"default"}


def test_every_source_wins_over_the_weaker_ones(tmp_path: Path) -> None:
    user = write(tmp_path / "user.yaml", "seed: 1\nout: user\nteam: user\ndevice: cpu\nthreads: 1\n")
    local = write(tmp_path / "agentrt.yaml", "seed: 2\nout: local\nteam: local\ndevice: cuda\n")
    resolved = settle(
        flags={"seed": 4, "out": "flag", "team": None},
        sets=("seed=5",),
        environ={"AGENTRT_SEED": "3", "AGENTRT_OUT": "env", "AGENTRT_TEAM": "env"},
        files=(user, local),
    )
    settings, origins = resolved.settings, resolved.origins
    assert (settings.seed, origins["seed"]) == (5, "--set seed=5")
    assert (settings.out, origins["out"]) == ("flag", "--out")
    assert (settings.team, origins["team"]) == ("env", "AGENTRT_TEAM")
    assert (settings.device, origins["device"]) == ("cuda", f"{local}:4")
    assert (settings.threads, origins["threads"]) == (1, f"{user}:5")
    assert (settings.offline, origins["offline"]) == (False, "default")


def test_a_setting_may_be_put_back_to_its_default(tmp_path: Path) -> None:
    local = write(tmp_path / "agentrt.yaml", "offline: true\nseed: 7\n")
    resolved = settle(environ={"AGENTRT_OFFLINE": "0"}, sets=("seed=0",), files=(local,))
    assert (resolved.settings.offline, resolved.settings.seed) == (False, 0)


def test_dotted_names_change_the_team_file(tmp_path: Path) -> None:
    local = write(tmp_path / "agentrt.yaml", "overrides:\n  limits: {max_steps: 3, repeat: 4}\n")
    resolved = settle(
        sets=("limits.max_steps=5", "roles.plan.sampling={temperature: 0.5}", "scheme.schedule=lp"),
        flags={"scheme": "rebase_shared"},
        files=(local,),
    )
    team = resolved.load_team(need_adapters=False)
    assert (team.limits.max_steps, team.limits.repeat) == (5, 4)
    assert team.roles["plan"].sampling.temperature == 0.5
    assert str(team.scheme) == "rebase_shared:lp"
    assert resolved.origins["overrides.limits.max_steps"] == "--set limits.max_steps=5"
    assert resolved.origins["overrides.limits.repeat"] == f"{local}:2"


def test_a_wrong_team_value_names_the_flag_it_came_from() -> None:
    with pytest.raises(ConfigError) as caught:
        settle(sets=("limits.max_stepz=5",)).load_team(need_adapters=False)
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == ("--set limits.max_stepz=5", 0)
    assert "did you mean 'max_steps'?" in problem.message


@pytest.mark.parametrize(
    ("sets", "environ", "place", "says"),
    [
        (("sead=5",), {}, "--set sead=5", "did you mean 'seed'?"),
        (("seed",), {}, "--set seed", "name=value"),
        (("seed=-1",), {}, "--set seed=-1", "at least 0"),
        (("seed=one",), {}, "--set seed=one", "whole number"),
        (("offline=yes",), {}, "--set offline=yes", "true or false"),
        (("device=gpu",), {}, "--set device=gpu", "auto, cpu, cuda"),
        (("seed=[1",), {}, "--set seed=[1", "not closed"),
        ((), {"AGENTRT_SEED": "x"}, "AGENTRT_SEED", "'x'"),
        ((), {"AGENTRT_DEVICE": "gpu"}, "AGENTRT_DEVICE", "'cuda'"),
        ((), {"AGENTRT_OFLINE": "1"}, "AGENTRT_OFLINE", "did you mean AGENTRT_OFFLINE?"),
    ],
)
def test_a_wrong_value_names_its_source(sets: tuple[str, ...], environ: dict[str, str], place: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(sets=sets, environ=environ)
    assert caught.value.problems[0].file == place
    assert says in caught.value.problems[0].message


def test_a_wrong_value_in_a_file_has_line_and_column(tmp_path: Path) -> None:
    local = write(tmp_path / "agentrt.yaml", "seed: 1\nofline: true\n")
    with pytest.raises(ConfigError, match=r"agentrt\.yaml:2:1: unknown key 'ofline': did you mean 'offline'"):
        settle(files=(local,))


def test_a_secret_given_by_mistake_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        settle(sets=("tools.Search.api_key=hunter2",)).load_team(need_adapters=False)
    assert "secrets come from the environment" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_other_variables_are_not_ours() -> None:
    assert settle(environ={"AGENTRT_CACHE_HOME": "/x", "SEED": "3"}).settings.seed == 0
