"""Stable-Baselines3's own Atari wrappers and ours serve at the same moments."""

from __future__ import annotations

import ale_py
import gymnasium as gym
import numpy as np
import pytest

from a2c.config import EnvConfig
from a2c.envs import make_simulator
from a2c.envs.gymnasium import FireOnLifeLoss, ScalarEnvs

pytestmark = pytest.mark.slow
sb3 = pytest.importorskip("stable_baselines3.common.atari_wrappers")

BALL_HEIGHT = 101  # of Breakout's memory: 0 while no ball is in play (Anand et al. 2019, arXiv 1906.08226)
NOOP = 0


def theirs(game: str) -> gym.Env:
    gym.register_envs(ale_py)
    return sb3.AtariWrapper(gym.make(f"{game}NoFrameskip-v4"), noop_max=10)


def ours(game: str, **settings: object) -> ScalarEnvs:
    envs = make_simulator(EnvConfig(id=game, num_envs=1, backend="wrappers", noop_max=10, **settings))
    assert isinstance(envs, ScalarEnvs)
    return envs


def ball_is_in_play(env: gym.Env) -> bool:
    return bool(env.unwrapped.ale.getRAM()[BALL_HEIGHT])


def serves_of_theirs() -> list[bool]:
    """For each life of a game in which nobody asks for FIRE: whether a ball is in play when the agent first chooses."""
    env, found = theirs("Breakout"), []
    while True:
        env.reset(seed=len(found))
        found.append(ball_is_in_play(env))
        lives = env.unwrapped.ale.lives()
        while not env.step(NOOP)[2]:
            pass
        assert env.unwrapped.ale.lives() == lives - 1
        if lives == 1:
            return found


def serves_of_ours(**settings: object) -> list[bool]:
    """The same of ours; the step after a lost life is not the agent's."""
    envs, action = ours("Breakout", **settings), np.full(1, NOOP, np.int32)
    env = envs._envs[0]
    _, lives = envs.reset(np.ones(1, np.bool_), np.zeros(1, np.int64))
    found = [ball_is_in_play(env)]
    for _ in range(500):
        outcome = envs.step(action)
        if outcome.terminated[0]:
            break
        if outcome.lives[0] < lives[0]:
            outcome = envs.step(action)
            found.append(ball_is_in_play(env))
        lives = outcome.lives
    return found


def test_each_life_begins_with_a_ball_in_play_as_theirs_does() -> None:
    assert serves_of_ours() == serves_of_theirs() == [True] * 5
    assert serves_of_ours(fire_on_life_loss=False) == [True, False]  # what the setting is for


@pytest.mark.parametrize(
    "game",
    ["Asteroids", "BeamRider", "Breakout", "Enduro", "Freeway", "MsPacman", "Pong", "Qbert", "Seaquest", "Skiing"],
)
def test_fire_is_pressed_in_the_games_in_which_theirs_presses_it(game: str) -> None:
    assert (FireOnLifeLoss in wrappers(ours(game)._envs[0])) == (sb3.FireResetEnv in wrappers(theirs(game)))


def wrappers(env: gym.Env) -> set[type]:
    found = set()
    while isinstance(env, gym.Wrapper):
        found.add(type(env))
        env = env.env
    return found
