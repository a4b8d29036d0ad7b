"""Losses and advantages against figures worked out by hand."""

import math

import pytest
import torch

from patchgym.train.losses import (
    clipped_away,
    clipped_policy_loss,
    importance_ratio,
    k3_divergence,
    negative_log_likelihood,
    normaliser,
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


def test_normalisers() -> None:
    assert normaliser("constant", rows=3, tokens=70, row_tokens=100) == 300
    assert normaliser("tokens", rows=3, tokens=70, row_tokens=100) == 70
