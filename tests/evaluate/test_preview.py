"""A preview of what roles read: the runtime's own segments, through every node of the flow."""

from pathlib import Path

import pytest

from agentrt.builtin import built_in_teams, configs_dir
from agentrt.config.team import Team
from agentrt.evaluate.preview import preview
from agentrt.runtime.dialect import Renderer
from agentrt.testing import ByteTokenizer

CALLS = """\
version: 1
roles:
  agent: {adapter: none, sampling: {max_new_tokens: 9}}
  judge: {adapter: none, instruction: Be strict.}
tools:
  Search: {use: offline.search}
flow:
  start: act
  nodes:
    act: {role: agent, emits: call, choices: [Search, Finish], next: {Finish: weigh, default: use}}
    use: {tool: true, next: act}
    weigh: {role: judge, emits: verdict, choices: [wrong, right], next: {right: end, wrong: act}}
limits: {max_observation_tokens: 33, max_turns: 1}
"""


@pytest.fixture
def calls(tmp_path: Path) -> Team:
    (tmp_path / "calls.yaml").write_text(CALLS)
    return Team.load(tmp_path / "calls.yaml")


def test_every_node_is_shown_whatever_the_limits_and_the_flow_ends(calls: Team) -> None:
    spans = preview(calls, ByteTokenizer())
    assert "".join(span.text for span in spans) == (
        "Question: …\nAction: Search[…]\nObservation: …\nAction: Finish[…]\nBe strict.\nAction: Reflect[ right]"
    )
    assert [span.at_most for span in spans if span.kind == "call"] == [9, 9]
    assert [span.at_most for span in spans if span.kind == "observation"] == [33]
    assert [span.author for span in spans if span.kind == "verdict"] == ["judge"]
    assert all(span.num_tokens == len(span.text.encode()) for span in spans)
    assert all(span.at_most is None for span in spans if span.kind in ("label", "instruction", "question", "end"))


@pytest.mark.parametrize("name", [*built_in_teams(), str(configs_dir() / "starter" / "team.yaml")])
def test_shipped_teams_show_every_role_and_their_preamble(name: str) -> None:
    team = Team.load(name, need_adapters=False)
    spans = preview(team, ByteTokenizer())
    preamble = Renderer(team.dialect, ByteTokenizer()).preamble(team.preamble)
    assert spans[0].num_tokens == len(preamble) > 0
    written = [span.author for span in spans if span.author in team.roles]
    assert set(written) == set(team.roles)
    assert {span.kind for span in spans if span.author in team.roles} == {
        node.emits for node in team.flow.role_nodes().values()
    }
