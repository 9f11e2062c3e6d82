"""Stable-Baselines3's A2C and PPO with the hyper-parameters of its zoo (rl-baselines3-zoo, hyperparams/*.yml, `atari`).

Scalar environments one after the other in this process, as its users run it: worker processes were slower on two cores.
Included: its Monitor. Left out: its log. A2C's `learn` is called for ten updates at a time; sixty were as fast.
"""

from __future__ import annotations

import ale_py
import gymnasium as gym
import torch
from protocol import Settings, Train, serve, updates_per_call
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecFrameStack

A2C_SETTINGS = {
    "ent_coef": 0.01,
    "vf_coef": 0.25,
    "policy_kwargs": {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}},
}
PPO_SETTINGS = {
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": 2.5e-4,
    "clip_range": 0.1,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
}

gym.register_envs(ale_py)


def build(settings: Settings) -> Train:
    """The variant is {"ppo": bool}."""
    torch.set_num_threads(settings.threads)
    envs = make_atari_env(f"{settings.game}NoFrameskip-v4", n_envs=settings.num_envs, seed=0)
    rollout = settings.rollout_length * settings.num_envs
    minibatches = {"batch_size": -(-rollout // 4)}  # four of any rollout, as the other contestants make
    algorithm, values = (PPO, PPO_SETTINGS | minibatches) if settings.variant["ppo"] else (A2C, A2C_SETTINGS)
    model = algorithm(
        "CnnPolicy", VecFrameStack(envs, n_stack=4), n_steps=settings.rollout_length, device="cpu", **values
    )
    steps = updates_per_call(rollout) * rollout

    def train() -> int:
        model.learn(steps, log_interval=None, reset_num_timesteps=False)  # goes on with the same episodes
        return steps

    return train


if __name__ == "__main__":
    serve(build, ["stable_baselines3", "torch", "gymnasium", "ale-py", "numpy"])
