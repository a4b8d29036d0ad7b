"""Losses against figures worked out by hand."""

import math

import pytest
import torch

from patchgym.train.losses import (
    clipped_away,
    clipped_policy_loss,
    clipped_value_loss,
    clipped_weight_loss,
    entropy,
    importance_ratio,
    k3_divergence,
    negative_log_likelihood,
    normaliser,
    outside,
    reinforce_loss,
    sequence_ratio,
    token_weights,
    truncated_weight,
)

pytestmark = pytest.mark.train


def test_ratio_and_likelihood() -> None:
    logprobs_N, sampler_N = torch.tensor([-1.0, -2.0]), torch.tensor([-1.0, -2.0 + math.log(2)])
    torch.testing.assert_close(importance_ratio(logprobs_N, sampler_N), torch.tensor([1.0, 0.5]))
    torch.testing.assert_close(negative_log_likelihood(logprobs_N), torch.tensor([1.0, 2.0]))


def test_clipped_loss_and_its_gradient() -> None:
    #                        inside  too high  too low   inside   too high  too low
    ratio_N = torch.tensor([1.1, 1.5, 0.5, 0.9, 1.5, 0.5], requires_grad=True)
    advantages_N = torch.tensor([2.0, 2.0, 2.0, -1.0, -1.0, -1.0])
    losses_N = clipped_policy_loss(ratio_N, advantages_N, clip_low=0.2, clip_high=0.3)
    # min(rA, clip(r)A): 2.2, 2.6 (clipped), 1.0; -0.9, -1.5, -0.8 (clipped)
    torch.testing.assert_close(losses_N, torch.tensor([-2.2, -2.6, -1.0, 0.9, 1.5, 0.8]))
    (gradient_N,) = torch.autograd.grad(losses_N.sum(), ratio_N)
    torch.testing.assert_close(gradient_N, torch.tensor([-2.0, 0.0, -2.0, 1.0, 1.0, 0.0]))
    low_N, high_N = clipped_away(ratio_N.detach(), advantages_N, clip_low=0.2, clip_high=0.3)
    assert low_N.tolist() == [False, False, False, False, False, True]
    assert high_N.tolist() == [False, True, False, False, False, False]


def test_at_ratio_one_the_gradient_is_the_policy_gradient() -> None:
    logprobs_N = torch.tensor([-1.0, -3.0], requires_grad=True)
    advantages_N = torch.tensor([0.5, -0.25])
    ratio_N = importance_ratio(logprobs_N, logprobs_N.detach())
    loss = clipped_policy_loss(ratio_N, advantages_N, clip_low=0.2, clip_high=0.2).sum()
    torch.testing.assert_close(torch.autograd.grad(loss, logprobs_N)[0], -advantages_N)


def test_k3_is_zero_at_equality_and_averages_to_the_divergence() -> None:
    p_V, q_V = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    assert k3_divergence(p_V.log(), p_V.log()).abs().max() == 0
    k3_V = k3_divergence(p_V.log(), q_V.log())
    assert bool((k3_V > 0).all())
    torch.testing.assert_close((p_V * k3_V).sum(), (p_V * (p_V / q_V).log()).sum())


def test_a_sequence_ratio_is_the_geometric_mean_of_its_rows_ratios() -> None:
    ratios_N = torch.tensor([2.0, 8.0, 0.5, 3.0])
    rows_N = torch.tensor([0, 0, 2, 2])
    logprobs_N = torch.full((4,), -1.0).requires_grad_()
    ratio_N = sequence_ratio(logprobs_N, -1.0 - ratios_N.log(), rows_N)
    torch.testing.assert_close(ratio_N, torch.tensor([4.0, 4.0, math.sqrt(1.5), math.sqrt(1.5)]))
    (gradient_N,) = torch.autograd.grad(ratio_N[0], logprobs_N)
    torch.testing.assert_close(gradient_N, torch.tensor([2.0, 2.0, 0.0, 0.0]))


def test_a_truncated_weight_is_the_ratio_up_to_its_cap_and_has_no_gradient() -> None:
    old_N = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    weights_N = truncated_weight(old_N, torch.tensor([-1.0, -1.0 + math.log(2), -9.0]), 1.5)
    torch.testing.assert_close(weights_N, torch.tensor([1.0, 0.5, 1.5]))
    assert not weights_N.requires_grad


def test_a_clipped_weight_leaves_every_token_a_gradient() -> None:
    logprobs_N = torch.tensor([-1.0, -2.0, -3.0, -1.0], requires_grad=True)
    ratio_N = torch.tensor([1.1, 7.0, 0.1, 7.0])
    advantages_N = torch.tensor([1.0, 1.0, 2.0, -1.0])
    losses_N = clipped_weight_loss(ratio_N, advantages_N, logprobs_N, clip_low=0.5, clip_high=1.0)
    torch.testing.assert_close(losses_N, torch.tensor([1.1, 4.0, 3.0, -2.0]))
    torch.testing.assert_close(
        torch.autograd.grad(losses_N.sum(), logprobs_N)[0], torch.tensor([-1.1, -2.0, -1.0, 2.0])
    )
    low_N, high_N = outside(ratio_N, clip_low=0.5, clip_high=1.0)
    assert (low_N.tolist(), high_N.tolist()) == ([False, False, True, False], [False, True, False, True])


def test_reinforce_is_the_plain_policy_gradient() -> None:
    logprobs_N, advantages_N = torch.tensor([-1.0, -3.0], requires_grad=True), torch.tensor([0.5, -0.25])
    losses_N = reinforce_loss(logprobs_N, advantages_N)
    torch.testing.assert_close(losses_N, torch.tensor([0.5, -0.75]))
    torch.testing.assert_close(torch.autograd.grad(losses_N.sum(), logprobs_N)[0], -advantages_N)


def test_a_value_loss_keeps_values_from_jumping_towards_their_returns() -> None:
    #                         inside  jumped  jumped away
    values_N = torch.tensor([0.6, 0.9, 0.0], requires_grad=True)
    old_N, returns_N = torch.tensor([0.5, 0.5, 0.5]), torch.tensor([1.0, 1.0, 1.0])
    losses_N = clipped_value_loss(values_N, old_N, returns_N, clip=0.2)
    # Squared halves of 0.4; of 0.3, because only 0.7 counts; of 1.0, because moving away counts in full.
    torch.testing.assert_close(losses_N, torch.tensor([0.08, 0.045, 0.5]))
    torch.testing.assert_close(torch.autograd.grad(losses_N.sum(), values_N)[0], torch.tensor([-0.4, 0.0, -1.0]))


def test_entropy_of_even_and_of_certain_distributions() -> None:
    logits_NV = torch.tensor([[2.0, 2.0, 2.0, 2.0], [0.0, 0.0, -torch.inf, -torch.inf], [99.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(entropy(logits_NV), torch.tensor([math.log(4), math.log(2), 0.0]))
    assert len(entropy(torch.zeros(150, 3))) == 150


def test_the_gradient_of_a_weighted_k3_is_that_of_the_divergence() -> None:
    """On average over what the policy samples; k3's own gradient is that of the divergence the other way round."""
    logits_V = torch.tensor([0.3, -0.2, 0.9], requires_grad=True)
    reference_V = torch.tensor([0.5, 0.3, 0.2]).log()
    logprobs_V = logits_V.log_softmax(-1)
    p_V = logprobs_V.exp().detach()
    weighted_V = k3_divergence(logprobs_V, reference_V) * importance_ratio(logprobs_V, logprobs_V.detach())
    divergence = (logprobs_V.exp() * (logprobs_V - reference_V)).sum()
    (wanted_V,) = torch.autograd.grad(divergence, logits_V, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad((p_V * weighted_V).sum(), logits_V)[0], wanted_V)


def test_normalisers() -> None:
    assert normaliser("constant", rows=3, tokens=70, row_tokens=100) == 300
    assert normaliser("tokens", rows=3, tokens=70, row_tokens=100) == 70
    assert normaliser("rows", rows=3, tokens=70, row_tokens=100) == 3
    assert normaliser("tokens", rows=0, tokens=0, row_tokens=100) == 1


def test_a_token_of_a_short_row_weighs_more_only_in_a_mean_over_rows() -> None:
    rows_N, trained_R = torch.tensor([0, 0, 1]), torch.tensor([2, 1])
    assert token_weights("rows", rows_N, trained_R).tolist() == [0.5, 0.5, 1.0]
    assert token_weights("tokens", rows_N, trained_R).tolist() == [1.0, 1.0, 1.0]
    assert token_weights("constant", rows_N, trained_R).tolist() == [1.0, 1.0, 1.0]
