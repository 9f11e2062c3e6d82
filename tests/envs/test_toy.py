"""The toys do what their descriptions say."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from a2c.config import EnvConfig
from a2c.envs import make_vec_env
from a2c.envs.toy import TOYS, Catch


def rows_and_columns(image: np.ndarray, cell: int = 7) -> list[tuple[int, int]]:
    cells = image[::cell, ::cell, 0] == 255
    return [(int(row), int(column)) for row, column in np.argwhere(cells)]


@pytest.mark.parametrize("name", TOYS)
def test_each_is_found_by_its_name_and_by_its_gymnasium_id(name: str) -> None:
    short, full = (make_vec_env(EnvConfig(id=env_id, num_envs=2), seed=0) for env_id in (name, TOYS[name]))
    np.testing.assert_array_equal(short.reset(), full.reset())
    assert gym.spec(TOYS[name]).id == TOYS[name]


def test_a_caught_ball_pays_1_and_a_missed_one_costs_1() -> None:
    env = Catch()
    returns = []
    for seed in range(20):
        image, _ = env.reset(seed=seed)
        (_, ball), (_, paddle) = rows_and_columns(image)
        toward = seed % 2 == 0
        rewards, terminated = [], False
        while not terminated:
            action = 1 + int(np.sign(ball - paddle)) if toward else (0 if ball > 5 else 2)
            image, reward, terminated, truncated, _ = env.step(action)
            paddle = (
                next(column for row, column in reversed(rows_and_columns(image)) if row == 11) if toward else paddle
            )
            rewards.append(reward)
            assert not truncated
        assert len(rewards) == 11 and not any(rewards[:-1])
        returns.append(rewards[-1])
    assert returns == [1.0, -1.0] * 10


def test_the_balls_column_comes_from_the_seed() -> None:
    columns = {rows_and_columns(Catch().reset(seed=seed)[0])[0] for seed in range(60)}
    assert len(columns) == 12
    np.testing.assert_array_equal(Catch().reset(seed=3)[0], Catch().reset(seed=3)[0])


def test_the_screen_size_is_the_configured_one_and_what_no_cell_fills_is_black() -> None:
    envs = make_vec_env(EnvConfig(id="Catch", num_envs=1, screen_size=50), seed=0)
    image = envs.reset()[0]
    assert image.shape == (50, 50, 1) == envs.observation_space.shape
    assert not image[48:].any() and not image[:, 48:].any()
    assert len(rows_and_columns(image, cell=4)) == 2


def test_the_bandits_arms_pay_as_often_as_said() -> None:
    envs = make_vec_env(EnvConfig(id="Bandit", num_envs=2), seed=0)
    envs.reset()
    steps = [envs.step(np.array([0, 1])) for _ in range(1500)]
    assert all(step.terminated.all() for step in steps)
    means = np.mean([step.rewards for step in steps], axis=0)
    np.testing.assert_allclose(means, [0.2, 0.8], atol=0.05)  # 4.8 standard errors


def test_the_chain_pays_at_its_end_and_is_only_ever_truncated() -> None:
    envs = make_vec_env(EnvConfig(id="Chain", num_envs=2), seed=0)
    np.testing.assert_array_equal(envs.reset(), np.eye(6)[[0, 0]])
    steps = [envs.step(np.array([1, 0])) for _ in range(32)]
    assert steps[-1].truncated.all() and not any(step.terminated.any() for step in steps)
    np.testing.assert_array_equal(steps[-1].final_observations, np.eye(6)[[5, 0]])
    np.testing.assert_allclose([episode.episode_return for episode in steps[-1].episodes], [27.0, 3.2], rtol=1e-6)
