"""Quantiles of the normal and of Student's distribution, without a library of statistics."""

from math import cos, pi, sin, sqrt
from statistics import NormalDist

_MANY = 300
_HALVINGS = 60


def normal_quantile(p: float) -> float:
    """Where the standard normal distribution has the share ``p`` below it."""
    return NormalDist().inv_cdf(p)


def normal_share(z: float) -> float:
    """The share of the standard normal distribution below ``z``."""
    return NormalDist().cdf(z)


def t_quantile(p: float, freedom: int) -> float:
    """Where Student's distribution with ``freedom`` degrees of freedom (at least 1) has the share ``p`` below it.

    The distribution is a finite sum for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4), which
    is inverted by halving; from 300 on by the first terms of its expansion (26.7.5), exact there to 1e-6.
    """
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1 - p, freedom)
    if freedom >= _MANY:
        z = normal_quantile(p)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    low, high = 0.0, pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 2 * p - 1 else (low, middle)
    angle = (low + high) / 2
    return sqrt(freedom) * sin(angle) / cos(angle)


def _within(angle: float, freedom: int) -> float:
    """The share of Student's distribution within ``sqrt(freedom) * tan(angle)`` of 0."""
    term, total = 1.0, 0.0
    if freedom % 2:
        term = cos(angle)
        for at in range(1, freedom - 1, 2):
            total += term
            term *= cos(angle) ** 2 * (at + 1) / (at + 2)
        return 2 / pi * (angle + sin(angle) * total)
    for at in range(0, freedom, 2):
        total += term
        term *= cos(angle) ** 2 * (at + 1) / (at + 2)
    return sin(angle) * total
