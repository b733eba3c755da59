"""Sampling: cuts, constraints and counter-based draws; how often a host waits for a token."""

import numpy as np
import pytest
import torch

from agentrt.errors import EngineError, UsageError
from agentrt.model.sampling import Sampling, sample
from tests.device_double import Memory, Waiting

LOGITS = torch.tensor([0.0, 3.0, 2.0, 1.0, -1.0])


def draws(sampling, allowed=None, count=300):
    return [sample(LOGITS, sampling, position, allowed).token_id for position in range(count)]


def test_greedy_takes_the_best_allowed_token():
    assert sample(LOGITS, Sampling(), 0, None).token_id == 1
    assert sample(LOGITS, Sampling(), 0, [4, 3, 0]).token_id == 3


def test_logprobs_are_the_models_own():
    expected = LOGITS.log_softmax(-1)
    assert sample(LOGITS, Sampling(temperature=9.0, seed=3), 5, [4]).logprob == pytest.approx(float(expected[4]))


def test_draws_depend_on_seed_and_position_alone():
    hot = Sampling(temperature=2.0, seed=7)
    assert draws(hot) == draws(hot)
    assert draws(hot) != draws(Sampling(temperature=2.0, seed=8))
    assert draws(hot, count=100) == draws(hot)[:100]


def test_frequencies_follow_the_distribution():
    counts = torch.bincount(torch.tensor(draws(Sampling(temperature=1.0, seed=1), count=4000)), minlength=5) / 4000
    assert torch.allclose(counts, LOGITS.softmax(-1), atol=0.03)


def test_cuts_drop_the_tail():
    assert set(draws(Sampling(temperature=5.0, top_k=2))) == {1, 2}
    assert set(draws(Sampling(temperature=1.0, top_p=0.6))) == {1}
    assert set(draws(Sampling(temperature=1.0, top_p=0.7))) == {1, 2}


@pytest.mark.parametrize("allowed", [None, [7, 3, 250, 3, 90]])
@pytest.mark.parametrize("cuts", [{}, {"top_k": 17}, {"top_p": 0.4}, {"top_k": 40, "top_p": 0.8}, {"top_k": 900}])
def test_draws_are_those_of_the_survivors_alone(cuts, allowed):
    """Written out in numpy: the best `top_k`, of these the fewest that hold `top_p`, in the order of ids."""
    generator = torch.Generator().manual_seed(1)
    sampling = Sampling(temperature=0.7, seed=5, **cuts)
    for position in range(40):
        logits = 3 * torch.randn(300, generator=generator)
        ids = np.arange(300) if allowed is None else np.unique(allowed)
        scores = logits.double().numpy()[ids]
        probs = np.exp((scores - scores.max()) / 0.7)
        order = np.argsort(-probs)[: sampling.top_k or len(ids)]
        before = np.cumsum(probs[order]) - probs[order]
        order = np.sort(order[before < sampling.top_p * probs[order].sum()])
        shares = np.cumsum(probs[order]) / probs[order].sum()
        drawn = np.random.Generator(np.random.Philox(key=5, counter=position)).random()
        token, logprob = sample(logits, sampling, position, allowed)
        assert token == ids[order[np.searchsorted(shares, drawn, side="right")]]
        assert logprob == float(logits.log_softmax(-1)[token])


@pytest.mark.parametrize("allowed", [None, [4, 3, 1]])
@pytest.mark.parametrize("how", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3, "top_p": 0.9}], ids=str)
def test_a_host_waits_for_a_token_once(how, allowed):
    with Waiting(Memory()) as seen:
        sample(LOGITS, Sampling(**how), 0, allowed)
    assert seen.waits == {"tolist": 1}


@pytest.mark.parametrize("how", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3, "top_p": 0.9}], ids=str)
def test_logits_that_are_not_numbers_are_an_error(how):
    with pytest.raises(EngineError, match="are not numbers"):
        sample(LOGITS * float("nan"), Sampling(**how), 0, None)


@pytest.mark.parametrize("allowed", [[-1, 2], [2, 5]])
def test_an_id_outside_the_vocabulary_is_an_error(allowed):
    with pytest.raises(UsageError, match=r"outside the vocabulary \[0, 5\)"):
        sample(LOGITS, Sampling(), 0, allowed)


@pytest.mark.parametrize("bad", [{"max_new_tokens": 0}, {"temperature": -0.1}, {"top_p": 0}, {"top_k": -1}])
def test_settings_out_of_range_are_named(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        Sampling(**bad)


def test_a_constraint_without_choices_is_an_error():
    with pytest.raises(UsageError, match="allows no first token"):
        sample(LOGITS, Sampling(), 0, [])


def test_forced_tokens_come_first_and_then_what_the_constraint_allows():
    class Only:
        def allowed(self, generated):
            return [4] if len(generated) < 3 else []

    sampling = Sampling(max_new_tokens=9, forced=(7, 8), constraint=Only())
    assert [sampling.allowed(range(length)) for length in range(4)] == [[7], [8], [4], []]
    assert [sampling.forces(range(length)) for length in range(3)] == [True, True, False]
    with pytest.raises(UsageError, match="2 forced tokens, max_new_tokens is 1"):
        Sampling(max_new_tokens=1, forced=(7, 8))
