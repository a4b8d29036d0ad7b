"""Draws follow the distribution that they report."""

import math

import pytest
import torch
from torch import Tensor

from patchgym.policy.draw import draw

pytestmark = pytest.mark.train

LOGITS_V = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()


def _draw(uniform: list[float], temperature: float = 1.0, top_p: float = 1.0) -> tuple[list[int], list[float]]:
    rows = len(uniform)
    ids_B, logprobs_B = draw(
        LOGITS_V.expand(rows, -1),
        torch.full((rows,), temperature),
        torch.full((rows,), top_p),
        torch.tensor(uniform, dtype=torch.float64),
    )
    return ids_B.tolist(), logprobs_B.tolist()


def test_a_number_falls_on_the_token_whose_share_holds_it() -> None:
    ids, logprobs = _draw([0.0, 0.499, 0.501, 0.79, 0.81, 0.951, 1 - 2**-53])
    assert ids == [0, 0, 1, 1, 2, 3, 3]
    assert logprobs == pytest.approx([math.log(p) for p in (0.5, 0.5, 0.3, 0.3, 0.15, 0.05, 0.05)])


def test_temperature_is_part_of_the_log_prob() -> None:
    total = sum(p**2 for p in (0.5, 0.3, 0.15, 0.05))
    ids, logprobs = _draw([0.5 * 0.25 / total, 0.25 / total + 0.01], temperature=0.5)
    assert ids == [0, 1]
    assert logprobs == pytest.approx([math.log(0.25 / total), math.log(0.09 / total)])


def test_the_nucleus_is_renormalised() -> None:
    ids, logprobs = _draw([0.0, 0.62, 0.63, 0.999999], top_p=0.75)
    assert ids == [0, 0, 1, 1]
    assert logprobs == pytest.approx([math.log(0.625)] * 2 + [math.log(0.375)] * 2)


def test_a_nucleus_smaller_than_any_token_keeps_the_likeliest() -> None:
    assert _draw([0.999], top_p=1e-6) == ([0], [0.0])


def test_greedy_reports_the_plain_softmax() -> None:
    ids, logprobs = _draw([0.999], temperature=0.0, top_p=0.1)
    assert ids == [0]
    assert logprobs == pytest.approx([math.log(0.5)])


def test_rows_with_different_settings_do_not_mix() -> None:
    ids_B, logprobs_B = draw(
        LOGITS_V.expand(3, -1),
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([1.0, 0.4, 1.0]),
        torch.tensor([0.9, 0.9, 0.9], dtype=torch.float64),
    )
    assert ids_B.tolist() == [0, 0, 2]
    assert logprobs_B.tolist() == pytest.approx([math.log(0.5), 0.0, math.log(0.15)])


def test_frequencies_match_on_a_large_vocabulary() -> None:
    logits_V = torch.randn(5000, generator=torch.Generator().manual_seed(0)) * 3
    uniform_B = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    ids_B, _ = draw(logits_V.expand(2000, -1), torch.ones(2000), torch.ones(2000), uniform_B)
    likely: Tensor = logits_V.softmax(-1).topk(5).indices
    for token in likely.tolist():
        share = (ids_B == token).double().mean().item()
        assert share == pytest.approx(logits_V.softmax(-1)[token].item(), abs=1 / 2000 + 1e-6)


def test_a_token_of_no_probability_is_never_drawn() -> None:
    logits_BV = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(4, -1)
    uniform_B = torch.tensor([0.0, 0.4999999, 0.5, 1 - 2**-53], dtype=torch.float64)
    ids_B, _ = draw(logits_BV, torch.ones(4), torch.ones(4), uniform_B)
    assert ids_B.tolist() == [1, 1, 3, 3]
