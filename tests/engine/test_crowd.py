"""Eight sessions at once give, token for token, what each gives alone: whenever they arrive, any size of chunks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrt.engine import EngineConfig
from agentrt.model.sampling import Sampling
from tests.crew import tiny_engine
from tests.engine.conftest import VARIANTS
from tests.engine.test_engine import play
from tests.models import random_turns

SESSIONS = 8
TURNS = 4
FEW = ("pre_lr_shared", "rebase_shared:auto", "cacheblend", "alora")
ALL = (*VARIANTS, "alora", "ridge")
INVOCATION = ord(":")
"""What `tiny_engine` trains adapters of alora for."""

every_scheme = pytest.mark.parametrize(
    "scheme", [each if each in FEW else pytest.param(each, marks=pytest.mark.slow) for each in ALL]
)
a_few_times = settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def open_any(open_engine, tmp_path):
    """open_any(scheme, **config): `open_engine`, and for what needs adapters or maps of its own, `tiny_engine`."""
    opened = []

    def build(scheme, **config):
        if scheme not in ("alora", "ridge"):
            return open_engine(scheme, **config)
        limits = EngineConfig(segment_slots=64, poison=True, **{"ride_rows": 4, **config})
        opened.append(tiny_engine(tmp_path, scheme, config=limits))
        return opened[-1]

    yield build
    for engine in opened:
        engine.close()


def turns_of(seed, scheme):
    """Four turns of one session; adapters of alora are invoked within the context of each."""
    turns = random_turns(seed, count=TURNS)
    if scheme == "alora":
        turns = [(agent, [*context, INVOCATION, seed], forced) for agent, context, forced in turns]
    return turns


def tokens_alone(engine, scheme):
    return [play(engine, turns_of(seed, scheme)).trajectory.token_ids for seed in range(SESSIONS)]


@every_scheme
@a_few_times
@given(order=st.permutations(range(SESSIONS)), step=st.integers(1, 60), chunk=st.integers(1, 9), ride=st.integers(0, 5))
def test_company_changes_no_token(open_any, scheme, order, step, chunk, ride):
    quiet = open_any(scheme)
    alone = tokens_alone(quiet, scheme)
    crowd = open_any(scheme, max_step_tokens=step, chunk_tokens=chunk, ride_rows=ride)
    with ThreadPoolExecutor(SESSIONS) as pool:
        running = {seed: pool.submit(play, crowd, turns_of(seed, scheme)) for seed in order}
        found = [running[seed].result().trajectory.token_ids for seed in range(SESSIONS)]
    assert found == alone
    for engine in (quiet, crowd):
        engine.check_integrity()
        engine.close()


class Guest:
    """A session whose turns are submitted between two steps.

    Its first is due once the guest before it is at the phase `when` (or past its first turn), the others `pause` steps
    after the one before.
    """

    def __init__(self, engine, turns, before, when, pause):
        self.session = engine.session(preamble=[4, 8, 15])
        self.waited_for = False
        """Whether it arrived at that phase."""
        self._turns, self._left = turns, list(turns)
        self._before, self._when, self._pause = before, when, pause
        self._turn, self._due = None, 0

    @property
    def phase(self):
        work = self.session._work.turn
        if work is None:
            return "between"
        if work.token_ids:
            return "decode"
        return "prefill" if work._rows else "waiting"

    @property
    def past_first(self):
        return len(self._left) < len(self._turns) and (self._turn is None or len(self._left) < len(self._turns) - 1)

    def look(self, now):
        """Submit the next turn if it is due at step `now`; whether all have ended."""
        if self._turn is not None and self._turn.done:
            self._turn, self._due = None, now + self._pause
        if self._turn is None and self._left and now >= self._due and self._may_come():
            agent, context, forced = self._left.pop(0)
            self._turn = self.session.turn(agent, context, Sampling(max_new_tokens=len(forced)))
        return self._turn is None and not self._left

    def _may_come(self):
        if self._before is None or len(self._left) < len(self._turns):
            return True
        self.waited_for = self._before.phase == self._when
        return self.waited_for or self._before.past_first


def long_first(turns):
    """The first prefill takes several steps, and so does what is written behind it."""
    (agent, context, forced), *others = turns
    return [(agent, [9] * 45 + context, [0] * 8 + forced), *others]


PHASES = st.sampled_from(["waiting", "prefill", "decode", "between"])


@every_scheme
@a_few_times
@given(
    whens=st.lists(PHASES, min_size=SESSIONS - 3, max_size=SESSIONS - 3),
    pauses=st.lists(st.integers(0, 4), min_size=SESSIONS, max_size=SESSIONS),
    chunk=st.integers(24, 40),
    more=st.integers(0, 30),
    ride=st.integers(0, 5),
)
def test_whoever_arrives_in_the_midst_of_others_changes_no_token(open_any, scheme, whens, pauses, chunk, more, ride):
    """No thread decides who comes when: a host's turn goes on throughout, and guests come between tokens of it."""
    quiet = open_any(scheme)
    turns = [long_first(turns_of(seed, scheme)) for seed in range(SESSIONS)]
    alone = [play(quiet, each).trajectory.token_ids for each in turns]
    crowd = open_any(scheme, max_step_tokens=chunk + more, chunk_tokens=chunk, ride_rows=ride)
    guests = []
    for each, when, pause in zip(turns, ["between", "prefill", "decode", *whens], pauses, strict=True):
        guests.append(Guest(crowd, each, guests[-1] if guests else None, when, pause))

    def all_have_ended(said):
        ended = [guest.look(len(said)) for guest in guests]
        return all(ended)

    context = [1, 2, INVOCATION, 3]
    host = Sampling(max_new_tokens=440, stop=all_have_ended)
    said = crowd.session().turn("plan", context, host).result.token_ids
    assert len(said) < 440, "the guests have ended"
    assert [guest.waited_for for guest in guests[1:3]] == [True, True]
    assert [guest.session.trajectory.token_ids for guest in guests] == alone
    assert quiet.session().turn("plan", context, Sampling(max_new_tokens=len(said))).result.token_ids == said
    for engine in (quiet, crowd):
        engine.check_integrity()
        engine.close()
