"""Statistics of an agent's scores, and published scores to compare with. Pure functions; plays no games."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from a2c.config import EnvConfig
from a2c.extensions import split_wrapper

RESAMPLES = 10_000
FEWEST = 5  # games; for normal scores the interval of 2, 3, 4, 5 games covers the mean in 51, 76, 89, 92 % of cases


class Source(NamedTuple):
    """A publication of A2C scores."""

    citation: str
    protocol: str  # of PROTOCOLS
    env_steps: int  # of training, agent steps
    games: str  # the games that the score is the mean of
    algorithm: str = "A2C"


# The environment settings of each evaluation protocol.
PROTOCOLS: Mapping[str, Mapping[str, float]] = {
    # Mnih et al. 2015: only the number of no-ops at the start is random; up to 30 there, 0 to 29 here, see `noops`
    "deepmind": {"sticky_action_probability": 0.0, "noop_max": 30, "max_frames_per_episode": 108_000},
    # Machado et al. 2018, arXiv 1709.06009
    "machado": {"sticky_action_probability": 0.25, "noop_max": 0, "max_frames_per_episode": 108_000},
}
# The columns of a2c/atari_scores.csv, which names their sources. All are of the sampled policy.
PUBLISHED: Mapping[str, Source] = {
    "ppo_paper_a2c_10m": Source(
        "Schulman et al. 2017, arXiv 1707.06347, Table 6", "deepmind", 10_000_000, "last 100 of training, 3 seeds"
    ),
    "rl_zoo3_a2c_10m": Source(
        "Stable-Baselines3, rl-baselines3-zoo benchmark.md", "deepmind", 10_000_000, "evaluation, 1 run"
    ),
    "slm_lab_a2c_10m_sticky": Source(
        "SLM-Lab 5, docs/BENCHMARKS.md",
        "machado",
        10_000_000,
        "training, 4 seeds, with up to 30 no-ops besides the sticky actions",
    ),
}


def protocol_name(env: EnvConfig) -> str | None:
    """The name of the protocol that an Atari environment follows, or None if it follows none."""
    if env.frame_skip != 4 or env.wrappers:
        return None
    named = (name for name, rules in PROTOCOLS.items() if all(getattr(env, key) == rules[key] for key in rules))
    return next(named, None)


def noops(env: EnvConfig) -> str:
    """How a game of Atari starts, in words: ale-py draws below `noop_max`, and counts the FIRE it begins with."""
    return f"0 to {max(env.noop_max, 1) - 1} frames, drawn evenly, a FIRE counted"


def wrappers(env: EnvConfig) -> dict[str, str]:
    """What a protocol says of the wrappers around each environment, if there are any."""
    if not env.wrappers:
        return {}
    entries = map(split_wrapper, env.wrappers)
    listed = ", ".join(f"{name} {json.dumps(of)}" if of else name for name, of in entries)
    return {"wrappers": f"{listed}; the score is of the rewards inside them"}


def references(scores: Mapping[str, float], protocol: str | None, policy: str) -> tuple[dict[str, Any], ...]:
    """The published scores comparable with ours, with their `Source`: those of the same protocol and policy.

    Args:
        scores: of one game, by the columns of `PUBLISHED`.
        protocol: of our score.
        policy: of our score; all that are published are of A2C's sampled policy.
    """
    named = ((PUBLISHED[column], score) for column, score in scores.items())
    return tuple(
        {"score": score, **source._asdict()}
        for source, score in named
        if source.protocol == protocol and policy == "sampled"
    )


def mean_interval(scores: npt.ArrayLike) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of the mean over games; None for fewer than 5, which cover the mean too rarely.

    The expanded percentile interval of Hesterberg 2015, arXiv 1411.5279: for few games it takes more extreme
    percentiles, according to Student's t. docs/seeing.md says how often it covers the mean.

    Args:
        scores: [games], of independent games of one agent: the interval covers other games, not other training seeds.
    """
    from scipy.special import ndtr, stdtrit  # here, not at the top: training begins without it

    games = np.asarray(scores, np.float64)
    n = len(games)
    if n < FEWEST:
        return None
    rng = np.random.default_rng(0)
    draws = [rng.choice(games, n).mean() for _ in range(RESAMPLES)]
    tail = ndtr(np.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.025))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)
