"""Means with confidence intervals, and pass@k.

Samples of one example are not independent, so every interval is over *examples*: the mean of each example's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb, inf, sqrt
from statistics import NormalDist, fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95 % confidence interval over `n` examples."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def bounds(self) -> tuple[float, float] | tuple[None, None]:
        """The interval's ends; none with a single example, which has no spread."""
        return (self.low, self.high) if self.n > 1 else (None, None)

    def to_dict(self) -> dict[str, float | int]:
        return asdict(self)


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of one value per example; None when there are none."""
    return _estimate(values, 0.0 if _are_shares(values) else -inf)


def estimate_difference(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    """The mean of the first minus the second, over pairs of one value each per example."""
    values = [one - other for one, other in pairs]
    return _estimate(values, -1.0 if _are_shares([each for pair in pairs for each in pair]) else -inf)


def _are_shares(values: Sequence[float]) -> bool:
    """Whether all rewards are between 0 and 1, as nearly always: then their mean and its interval are too."""
    return all(0.0 <= value <= 1.0 for value in values)


def _estimate(values: Sequence[float], lowest: float) -> Estimate | None:
    n = len(values)
    if n == 0:
        return None
    mean = fmean(values)
    if n == 1:
        return Estimate(mean, -inf, inf, 1)
    half = _t_quantile(n - 1) * stdev(values) / sqrt(n)
    highest = 1.0 if lowest > -inf else inf
    return Estimate(mean, max(lowest, mean - half), min(highest, mean + half), n)


def estimate_share(values: Sequence[float]) -> Estimate | None:
    """The same for shares in [0, 1], with Wilson's interval, which is right at 0 and 1 too."""
    n = len(values)
    if n == 0:
        return None
    mean, z = fmean(values), NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    return Estimate(mean, max(0.0, centre - half), min(1.0, centre + half), n)


def _t_quantile(freedom: int) -> float:
    """Student's t at 97.5 %, by the Cornish-Fisher expansion; tabulated where that is inaccurate."""
    exact = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}
    if freedom in exact:
        return exact[freedom]
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return z + first + second + third


def pass_at_k(passed: int, n: int, k: int) -> float:
    """The chance that at least one of k samples, drawn from n of which `passed` passed, passes."""
    if n - passed < k:
        return 1.0
    return 1.0 - comb(n - passed, k) / comb(n, k)


def max_at_k(values: Sequence[float], k: int) -> float:
    """The expected best of k samples drawn from the given ones."""
    ranked, n = sorted(values), len(values)
    return sum(value * comb(rank, k - 1) for rank, value in enumerate(ranked) if rank >= k - 1) / comb(n, k)


def quantile(values: Sequence[float], share: float) -> float:
    """A value that `share` of the others do not exceed; 0 when there are none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0
