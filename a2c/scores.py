"""What the scores of an agent's games say: pure functions of numbers, no games are played here."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000


def mean_interval(scores: npt.ArrayLike, *, seed: int = 0) -> tuple[float, float] | None:
    """The 95 % percentile bootstrap interval of the mean over games (Efron 1979), None below two games.

    Args:
        scores: [games], of independent games of one agent: it is about other games, not about other training seeds.
        seed: of the draws.
    """
    games = np.asarray(scores, np.float64)
    if len(games) < 2:
        return None
    draws = np.random.default_rng(seed).choice(games, (RESAMPLES, len(games))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)
