"""Arguments that are spans, by what a team file says of them."""

from pathlib import Path

import pytest

from agentrt.runtime.episode import Runtime
from agentrt.testing import ScriptedEngine, ScriptError

from .conftest import MakeTeam

LONG = "Who was the man who directed the film of the year 1975 about a shark that eats people at the coast?"
RETRIEVE = "        Retrieve: {choices: seen_titles}"


def search(make_team: MakeTeam, corpus: Path, rule: str, *searches: str) -> list[str]:
    """The arguments of an episode that makes `searches`, where `rule` limits what Search may take."""
    team = make_team((RETRIEVE, f"        Search: {rule}\n{RETRIEVE}"))
    script = [word for each in searches for word in ("I search.", "Search", each)]
    script += ["Enough.", "Finish", "no", "Hm.", "right"]
    with Runtime(team, engine=ScriptedEngine(script), corpus=corpus) as rt:
        result = rt.run(LONG)
    assert not result.parse_failures
    return [act.argument for act in result.actions if act.action == "Search"]


def test_a_span_may_come_from_question_and_observations_and_be_a_whole_question(
    make_team: MakeTeam, corpus: Path
) -> None:
    asked = [LONG, "Jaws", "directed by Steven Spielberg."]
    assert search(make_team, corpus, "{span_of: [question, observations], max_words: 40}", *asked) == asked


def test_a_span_is_of_twelve_words_where_the_team_does_not_say(make_team: MakeTeam, corpus: Path) -> None:
    words = LONG.split()
    assert search(make_team, corpus, "{span_of: question}", " ".join(words[:12])) == [" ".join(words[:12])]
    with pytest.raises(ScriptError, match="as argument"):
        search(make_team, corpus, "{span_of: question}", " ".join(words[:13]))
    with pytest.raises(ScriptError, match="as argument"):
        search(make_team, corpus, "{span_of: question, max_words: 2}", "the film of")


def test_what_stands_in_neither_is_refused(make_team: MakeTeam, corpus: Path) -> None:
    with pytest.raises(ScriptError, match="as argument"):
        search(make_team, corpus, "{span_of: [question, observations]}", "Quint")
    with pytest.raises(ScriptError, match="' Search' as action"):  # nothing was observed yet, so it is not offered
        search(make_team, corpus, "{span_of: [observations]}", "people")
