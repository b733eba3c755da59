"""The doubles keep the rules of what they stand for."""

import pytest

from agentrt import testing
from agentrt.config.sections import DialectConfig
from agentrt.errors import EngineClosedError, TurnCancelledError
from agentrt.model.sampling import Sampling
from agentrt.runtime.constraints import ChoiceConstraint
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.ports import Engine, Tokenizer
from agentrt.testing import ByteTokenizer, FakeTool, ScriptedEngine, ScriptError
from agentrt.trajectory import Processed, Span
from agentrt_tools import ToolFailed, ToolResult


def test_the_doubles_fit_the_runtimes_ports() -> None:
    engine: Engine = ScriptedEngine([])
    tokenizer: Tokenizer = ByteTokenizer()
    assert engine.adapter_names == ()
    assert tokenizer.eos_ids == ()


@pytest.mark.parametrize("text", ["", "plain", "é東🎬", "x]\n]\n\n"])
def test_byte_tokens_give_the_text_back(text: str) -> None:
    tokenizer = ByteTokenizer("]\n", "]\n]", "東")
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_longest_merge_wins() -> None:
    assert ByteTokenizer("]\n", "]\n\n").encode("]\n\n]\n") == [257, 256]


def test_a_session_records_authors_and_paths_like_the_engine() -> None:
    session = ScriptedEngine(["yes"]).session([1, 2])
    session.append([3])
    turn = session.turn("plan", sampling=Sampling(), kind="argument")
    assert list(turn) == [*b" yes]"]
    assert turn.result.finish_reason == "length"  # there was no stop rule
    assert session.trajectory.spans == [
        Span(0, 2, "system", "preamble"),
        Span(2, 3, "user", "context"),
        Span(3, 8, "plan", "argument"),
    ]
    assert session.trajectory.processed == [Processed(0, 7, "plan")], "the last token is fed by the next turn"
    usage = turn.result.usage
    assert (usage.context_tokens, usage.reused_tokens, usage.generated_tokens) == (3, 0, 5)


def test_a_turn_obeys_its_stop_rule_and_its_token_limit() -> None:
    session = ScriptedEngine([[*b"abcdef"], [*b"abcdef"]]).session([0])
    turn = session.turn("plan", sampling=Sampling(stop=lambda ids: ids[-1] == ord("c")))
    assert (turn.result.token_ids, turn.result.finish_reason) == (tuple(b"abc"), "stop")
    turn = session.turn("plan", sampling=Sampling(max_new_tokens=2))
    assert (turn.result.token_ids, turn.result.finish_reason) == (tuple(b"ab"), "length")


def test_a_script_that_breaks_the_constraint_is_told_what_was_allowed() -> None:
    engine = ScriptedEngine(["maybe", "right"])
    constraint = ChoiceConstraint(engine.renderer, "verdict", ["right", "wrong"])
    session = engine.session([0])
    with pytest.raises(ScriptError, match=r"' maybe\]' as verdict of reflect.* ' r', ' w'"):
        list(session.turn("reflect", sampling=Sampling(constraint=constraint), kind="verdict"))
    turn = session.turn("reflect", sampling=Sampling(constraint=constraint), kind="verdict")
    assert turn.result.finish_reason == "constraint"


def test_a_choice_that_begins_another_is_ended_by_its_marker() -> None:
    engine = ScriptedEngine(["Go"])
    constraint = ChoiceConstraint(engine.renderer, "action", ["Go", "Gone"])
    turn = engine.session([0]).turn("plan", sampling=Sampling(constraint=constraint), kind="action")
    assert bytes(turn.result.token_ids) == b" Go["


def test_a_script_may_be_a_function_of_what_was_said() -> None:
    seen = []

    def script(adapter: str, kind: str, so_far: str) -> str:
        seen.append((adapter, kind, so_far))
        return "ok"

    engine = ScriptedEngine(script, dialect=DialectConfig(lead="_"))
    session = engine.session([*b"Hi"])
    assert bytes(session.turn("plan").result.token_ids) == b"_ok\n"
    assert seen == [("plan", "thought", "Hi")]


def test_a_script_that_ran_out_says_so() -> None:
    with pytest.raises(ScriptError, match="no text left for thought of plan"):
        list(ScriptedEngine([]).session([0]).turn("plan"))


def test_a_cancelled_turn_leaves_the_session_as_it_was() -> None:
    session = ScriptedEngine(["one", "two"]).session([0])
    turn = session.turn("plan")
    tokens = iter(turn)
    next(tokens)
    turn.cancel()
    with pytest.raises(TurnCancelledError):
        next(tokens)
    with pytest.raises(TurnCancelledError):
        _ = turn.result
    assert len(session.trajectory) == 1
    assert session.trajectory.num_processed == 0
    assert bytes(session.turn("plan").result.token_ids) == b" two\n"


def test_closed_engines_and_sessions_refuse_work() -> None:
    engine = ScriptedEngine(["x"])
    session = engine.session([0])
    session.close()
    with pytest.raises(EngineClosedError):
        session.turn("plan")
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.session()


def test_a_fake_tool_answers_misses_fails_and_remembers() -> None:
    result = ToolResult("b", titles=("B",))
    tool = FakeTool("fake", {"a": "text", "b": result, "c": ToolFailed("timeout", "late")})
    assert tool("a", {"page": "P"}) == ToolResult("text", state={"page": "P"})
    assert tool("b", {}) is result
    with pytest.raises(ToolFailed):
        tool("c", {})
    assert tool("d", {}).miss
    assert tool.calls == ["a", "b", "c", "d"]


def test_the_tiny_model_is_shipped_too() -> None:
    assert testing.tiny_model.__module__ == testing.tiny_adapter.__module__ == "agentrt.model.tiny"
    with pytest.raises(AttributeError, match="huge_model"):
        _ = testing.huge_model


def test_a_gold_script_renders_the_fields_that_training_renders() -> None:
    tokenizer = ByteTokenizer("]\n")
    engine = ScriptedEngine(["the answer"], tokenizer=tokenizer)
    turn = engine.session([0]).turn("action", kind="argument")
    assert list(turn.result.token_ids) == Renderer(DialectConfig(), tokenizer).field("argument", "the answer")
