"""Stable-Baselines3's A2C with the hyper-parameters of its zoo (rl-baselines3-zoo, hyperparams/a2c.yml, `atari`).

Scalar environments one after the other in this process, as its users run it: worker processes were slower on two cores.
Included: its Monitor. Left out: its log. Its `learn` is called for ten updates at a time; sixty at a time were as fast.
"""

from __future__ import annotations

import ale_py
import gymnasium as gym
import torch
from protocol import UPDATES, Settings, Train, serve
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecFrameStack

gym.register_envs(ale_py)


def build(settings: Settings) -> Train:
    """There are no variants."""
    torch.set_num_threads(settings.threads)
    envs = make_atari_env(f"{settings.game}NoFrameskip-v4", n_envs=settings.num_envs, seed=0)
    model = A2C(
        "CnnPolicy",
        VecFrameStack(envs, n_stack=4),
        n_steps=settings.rollout_length,
        ent_coef=0.01,
        vf_coef=0.25,
        policy_kwargs={"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}},
        device="cpu",
    )
    steps = UPDATES * settings.rollout_length * settings.num_envs

    def train() -> int:
        model.learn(steps, log_interval=None, reset_num_timesteps=False)  # goes on with the same episodes
        return steps

    return train


if __name__ == "__main__":
    serve(build, ["stable_baselines3", "torch", "gymnasium", "ale-py", "numpy"])
