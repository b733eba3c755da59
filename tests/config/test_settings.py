"""Precedence of settings, their origins, and the errors of each source."""

from pathlib import Path
from typing import Any

import pytest

from agentrt.config.settings import Resolved, resolve
from agentrt.config.team import Team
from agentrt.errors import ConfigError, UsageError


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


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ({"sets": ("scheme=non_shared",)}, "--set scheme=non_shared"),
        ({"flags": {"scheme": "non_shared"}}, "--scheme"),
        ({"environ": {"AGENTRT_SCHEME": "non_shared"}}, "AGENTRT_SCHEME"),
    ],
)
def test_a_scheme_drops_what_weaker_sources_say_of_it(tmp_path: Path, given: dict[str, Any], origin: str) -> None:
    local = write(tmp_path / "agentrt.yaml", "overrides:\n  scheme: {name: rebase_shared, schedule: lp}\n")
    resolved = settle(files=(local,), **given)
    assert resolved.settings.scheme == "non_shared"
    assert [(change.path, change.origin) for change in resolved.overrides] == [(("scheme",), origin)]
    assert str(resolved.load_team(need_adapters=False).scheme) == "non_shared"


def test_a_scheme_of_null_is_the_team_s_own_again(tmp_path: Path) -> None:
    local = write(tmp_path / "agentrt.yaml", "scheme: full_shared\noverrides: {scheme: {name: non_shared}}\n")
    own = settle().load_team(need_adapters=False).scheme
    assert settle(sets=("scheme=null",), files=(local,)).load_team(need_adapters=False).scheme == own


def test_options_of_a_scheme_may_come_from_its_own_file_or_a_stronger_source(tmp_path: Path) -> None:
    user = write(tmp_path / "user.yaml", "scheme: rebase_shared:db\noverrides: {scheme: {adapted_tail: 4}}\n")
    local = write(tmp_path / "agentrt.yaml", "overrides: {scheme: {schedule: lp}}\n")
    team = settle(files=(user, local)).load_team(need_adapters=False)
    assert team.scheme.options == {"schedule": "lp", "adapted_tail": 4}


TEAM = """\
version: 1
scheme:
  name: full_shared
roles:
  solver: {adapter: mine/solver, sampling: {max_new_tokens: 9}}
  critic: {adapter: none}
flow:
  start: think
  nodes:
    think: {role: solver, emits: thought, next: judge}
    judge: {role: critic, emits: verdict, choices: [right], next: {right: end}}
"""


def test_a_folder_of_adapters_and_a_preset_are_flags(tmp_path: Path) -> None:
    (tmp_path / "new" / "solver").mkdir(parents=True)
    (tmp_path / "new" / "solver" / "adapter_config.json").write_text('{"base_model_name_or_path": null}')
    file = write(tmp_path / "team.yaml", TEAM)
    weaker = "overrides: {roles: {solver: {adapter: old/solver, sampling: {temperature: 0.3, max_new_tokens: 7}}}}"
    local = write(tmp_path / "agentrt.yaml", weaker)
    new = {"adapters": tmp_path / "new", "sampling": "lragent"}

    def load(*sets: str) -> Team:
        return settle(flags={"team": str(file)}, sets=sets, files=(local,)).load_team(**new)

    solver, critic = load().roles.values()
    assert (solver.adapter, critic.adapter) == (str(tmp_path / "new" / "solver"), "none")
    assert (solver.sampling.temperature, solver.sampling.max_new_tokens) == (0.9, 7)
    team = load("roles.solver.sampling.temperature=0.2", "roles.critic.sampling.max_new_tokens=3")
    assert (team.roles["solver"].sampling.temperature, team.roles["solver"].sampling.top_k) == (0.2, 40)
    assert (team.roles["critic"].sampling.temperature, team.roles["critic"].sampling.max_new_tokens) == (0.9, 3)
    other = tmp_path / "new" / ".." / "new" / "solver"
    assert load(f"roles.solver.adapter={other}").adapters() == {"solver": other}


def test_places_in_the_team_file_outlive_a_folder_of_adapters_and_a_preset(tmp_path: Path) -> None:
    file = write(tmp_path / "team.yaml", TEAM)
    resolved = settle(flags={"team": str(file)})
    with pytest.raises(ConfigError, match=r"--adapters absent: no adapter folder .*/absent/solver"):
        resolved.load_team(adapters=Path("absent"))
    team = resolved.load_team(sampling="autoact", need_adapters=False)
    assert team.source == str(file)
    assert str(team.problem(("scheme", "name"), "wrong")) == f"{file}:3:9: wrong"
    assert str(team.problem(("roles", "solver", "sampling"), "wrong")) == "--sampling autoact: wrong"


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UsageError, match="no sampling preset 'greeedy': did you mean 'greedy'"):
        settle().load_team(need_adapters=False, sampling="greeedy")


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tools.Search.api_key=hunter2", "secrets come from the environment"),
        ("tools.Search={use: serper.search, api_key: hunter2}", "secrets come from the environment"),
        ('tools.Search={use: serper.search, "api_key":hunter2}', "secrets come from the environment"),
        ("tools.Search=api_key: hunter2", "secrets come from the environment"),
        ("tools={Search: {use: serper.search, api_key: hunter2}}", "secrets come from the environment"),
        ("tools.Search={api_key: hunter2", "not closed"),
        ('tools.Search=["api_key":hunter2]', "a mapping"),
        ("tools.Search.api_key.is=hunter2", "api_key: text is expected"),
    ],
)
def test_a_secret_given_by_mistake_is_refused_and_not_repeated(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(sets=(text,)).load_team(need_adapters=False)
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_other_variables_are_not_ours() -> None:
    assert settle(environ={"AGENTRT_CACHE_HOME": "/x", "SEED": "3"}).settings.seed == 0


def test_an_empty_section_of_overrides_changes_nothing(tmp_path: Path) -> None:
    local = write(tmp_path / "agentrt.yaml", "overrides: {}\n")
    assert settle(files=(local,)).overrides == []
