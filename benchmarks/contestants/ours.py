"""a2c itself: the two lines of `training.py`'s loop, with any preset.

Included: episodes of their own seeds, scores, the log of actions for exact resuming, and reading the losses every ten
updates (`a2c train` does so every hundred). Left out: checkpoints and the files of metrics.
"""

from __future__ import annotations

from a2c.learner import build_learner
from protocol import UPDATES, Settings, Train, serve

from a2c.config import build_config
from a2c.data.collector import build_collector
from a2c.envs import make_env_groups
from a2c.execution.runtime import parts_of, setup


def build(settings: Settings) -> Train:
    """The variant is a whole configuration, as `dump_config` gives it."""
    config = build_config(settings.variant, where="the driver")
    parts = parts_of(config)
    setup(config.runtime, parts=parts)
    envs = make_env_groups(config.env, seed=config.seed, groups=parts)
    learner = build_learner(config, envs.observation_space, envs.num_actions)
    collector = build_collector(config, envs, learner.act, learner.value)

    def train() -> int:
        for _ in range(UPDATES):
            trajectory, _ = collector.collect()
            losses = learner.update(trajectory)
        for loss in losses:
            float(loss)
        return UPDATES * config.env_steps_per_update

    return train


if __name__ == "__main__":
    serve(build, ["a2c", "tensorflow", "keras", "ale-py", "numpy"])
