"""Train Stable-Baselines3 as its zoo does: `python sb3_run.py GAME a2c|ppo SEED FOLDER`.

The settings are those of rl-baselines3-zoo, hyperparams/*.yml, `atari`: 10 M steps, PPO's rate and clip range falling
to 0 over them. In FOLDER/progress.csv `rollout/ep_rew_mean` is the mean raw return of the last 100 whole games.
"""

from __future__ import annotations

import os
import sys

import torch
from sb3 import A2C_SETTINGS, PPO_SETTINGS
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecFrameStack

STEPS = 10_000_000


def main(game: str, name: str, seed: str, folder: str) -> None:
    """Train until killed."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # else one for each pair of hyper-threads
    is_ppo = name == "ppo"
    envs = make_atari_env(f"{game}NoFrameskip-v4", n_envs=8 if is_ppo else 16, seed=int(seed))
    algorithm, settings = (PPO, {**PPO_SETTINGS, "n_steps": 128}) if is_ppo else (A2C, A2C_SETTINGS)
    if is_ppo:
        settings |= {key: lambda left, start=settings[key]: left * start for key in ("learning_rate", "clip_range")}
    model = algorithm("CnnPolicy", VecFrameStack(envs, n_stack=4), seed=int(seed), device="cpu", **settings)
    model.set_logger(configure(folder, ["csv"]))
    model.learn(STEPS, log_interval=1 if is_ppo else 10)


if __name__ == "__main__":
    main(*sys.argv[1:])
