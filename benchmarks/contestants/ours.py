"""a2c itself: `Algorithm.iterate`, one round of the loop of a2c/run/training.py, with any preset.

Included: episodes of their own seeds, scores, the log of actions for exact resuming, and reading the losses every 800
steps or every rollout. Left out: checkpoints and the files of metrics.
"""

from __future__ import annotations

from itertools import count

from protocol import Settings, Train, serve, updates_per_call

from a2c.algorithms.algorithm import build_algorithm
from a2c.config import build_config
from a2c.data.collector import build_collector
from a2c.envs import make_env_groups
from a2c.execution.runtime import parts_of, setup


def build(settings: Settings) -> Train:
    """The variant is a whole configuration, as `dump_config` gives it."""
    config = build_config(settings.variant, where="the driver")
    config = config.model_copy(update={"algorithm": config.algorithm.warmed_up()})  # it learns from the start
    parts = parts_of(config)
    setup(config.runtime, parts=parts)
    envs = make_env_groups(config.env, seed=config.seed, groups=parts)
    algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
    collector = build_collector(config, envs, algorithm.policy)
    numbers = count()
    updates = updates_per_call(config.env_steps_per_update)

    def train() -> int:
        for _ in range(updates):
            update, _ = algorithm.iterate(collector, next(numbers))
        for metric in update.metrics.values():
            float(metric)
        return updates * config.env_steps_per_update

    return train


if __name__ == "__main__":
    serve(build, ["a2c", "tensorflow", "keras", "ale-py", "numpy"])
