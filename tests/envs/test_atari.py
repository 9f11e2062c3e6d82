"""The native Atari environment: each test is named after the trap it guards."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from a2c.config import EnvConfig
from a2c.data.rollout import VecStep
from a2c.envs import VecEnv, clips_rewards, make_vec_env
from a2c.envs.atari import NativeAtari
from a2c.games import atari_game


def make(game: str, num_envs: int = 4, *, seed: int = 0, **settings) -> VecEnv:
    return make_vec_env(EnvConfig(id=game, num_envs=num_envs, **settings), seed=seed)


def play(envs: VecEnv, steps: int, seed: int = 0) -> tuple[np.ndarray, list[VecStep]]:
    actions = np.random.default_rng(seed).integers(envs.num_actions, size=(steps, envs.num_envs))
    return actions, [envs.step(row) for row in actions]


def assert_same(left: list[VecStep], right: list[VecStep]) -> None:
    for a, b in zip(left, right, strict=True):
        assert a.episodes == b.episodes
        for x, y in zip(a[:-1], b[:-1], strict=True):
            np.testing.assert_array_equal(x, y)


def starts(observations: np.ndarray) -> np.ndarray:
    """Whether observations [B, H, W, 4] are those of a reset: all frames but the newest are black."""
    return ~observations[..., :-1].any(axis=(1, 2, 3))


@pytest.fixture(scope="module")
def breakout() -> list[VecStep]:
    """What four environments give in 700 steps."""
    envs = make("Breakout")
    assert starts(envs.reset()).all()
    return play(envs, 700)[1]


def test_a_lost_life_neither_resets_nor_terminates_the_game(breakout: list[VecStep]) -> None:
    steps = breakout
    finished = [episode for step in steps for episode in step.episodes]
    assert len(finished) >= 4
    for index in range(4):
        lives = 5
        for step in steps:
            ended = bool(step.terminated[index])
            assert not step.truncated[index]
            assert ended == bool(starts(step.observations)[index])
            assert not (ended and step.life_lost[index])
            lives = 5 if ended else lives - int(step.life_lost[index])
            assert lives >= 1


def test_a_games_score_counts_all_its_lives(breakout: list[VecStep]) -> None:
    steps = breakout
    scores = {
        (episode.env_index, episode.number): episode.episode_return for step in steps for episode in step.episodes
    }
    summed, running, number = {}, np.zeros(4), np.zeros(4, int)
    for step in steps:
        running += step.rewards
        for index in np.flatnonzero(step.terminated):
            summed[index, number[index]] = running[index]
            running[index] = 0
            number[index] += 1
    assert scores == summed and max(scores.values()) > 0


def test_rewards_are_raw_float32() -> None:
    envs = make("SpaceInvaders", 2)
    envs.reset()
    _, steps = play(envs, 200)
    rewards = np.array([step.rewards for step in steps])
    assert rewards.dtype == np.float32 and rewards.max() >= 5


def test_an_episode_is_a_function_of_its_seed_and_actions_and_no_action_is_ignored() -> None:
    envs = make("Breakout", 2, sticky_action_probability=0.25, reseed_after=0)
    envs.reset()
    actions, steps = play(envs, 700)
    end = {(episode.env_index, episode.number): t for t, step in enumerate(steps) for episode in step.episodes}
    episode = next(episode for step in steps for episode in step.episodes if episode.number == 1)
    index, last = episode.env_index, end[episode.env_index, 1]
    alone = NativeAtari(EnvConfig(id="Breakout", num_envs=1, sticky_action_probability=0.25), atari_game("Breakout"))
    first, _ = alone.reset(np.ones(1, bool), np.array([episode.seed]))
    begin = end[index, 0] + 1
    assert last - begin + 1 == episode.length
    np.testing.assert_array_equal(first[0], steps[begin - 1].observations[index])
    for t in range(begin, last + 1):
        outcome = alone.step(actions[t, index : index + 1].astype(np.int32))
        np.testing.assert_array_equal(outcome.observations[0], steps[t].final_observations[index])
        assert outcome.rewards[0] == steps[t].rewards[index]
        assert outcome.terminated[0] == (t == last)


def test_a_series_is_a_function_of_its_seed_and_actions() -> None:
    envs = make("Breakout", 2, sticky_action_probability=0.25, reseed_after=300)
    envs.reset()
    actions, steps = play(envs, 900)
    episodes = [(t, episode) for t, step in enumerate(steps) for episode in step.episodes if episode.env_index == 1]
    seed = next(episode.seed for _, episode in episodes if episode.number > 0 and episode.seed != episodes[0][1].seed)
    begin = max(t for t, episode in episodes if episode.seed == episodes[0][1].seed)
    last = max(t for t, episode in episodes if episode.seed == seed)
    assert sum(episode.seed == seed for _, episode in episodes) > 1
    alone = NativeAtari(EnvConfig(id="Breakout", num_envs=1, sticky_action_probability=0.25), atari_game("Breakout"))
    observations, _ = alone.reset(np.ones(1, bool), np.array([seed]))
    for t in range(begin, last):
        np.testing.assert_array_equal(observations[0], steps[t].observations[1])
        outcome = alone.step(actions[t + 1, 1:2].astype(np.int32))
        observations = outcome.observations
        if outcome.terminated[0]:
            observations, _ = alone.reset(np.ones(1, bool), None)


def test_sticky_actions_are_as_configured() -> None:
    def outcomes(probability: float, seed: int) -> bytes:
        envs = make("Breakout", 1, seed=seed, sticky_action_probability=probability, noop_max=0)
        envs.reset()
        return b"".join(step.observations.tobytes() for step in play(envs, 40)[1])

    assert outcomes(0.0, seed=0) == outcomes(0.0, seed=1)  # nothing else is random
    assert outcomes(0.25, seed=0) != outcomes(0.25, seed=1)
    assert outcomes(0.25, seed=0) == outcomes(0.25, seed=0)


def test_neighbouring_run_seeds_share_no_episode() -> None:
    runs = [make("Bandit", 3, seed=seed) for seed in (0, 1)]  # an episode a step
    seeds = []
    for envs in runs:
        envs.reset()
        seeds += [episode.seed for step in play(envs, 2)[1] for episode in step.episodes]
    assert len(seeds) == 2 * 2 * 3 == len(set(seeds))
    assert np.abs(np.diff(sorted(seeds))).min() > 1


@pytest.mark.parametrize(("fire_reset", "fire_on_life_loss", "lives"), [(1, 1, 5), (1, 0, 1), (0, 1, 0)])
def test_the_ball_is_served_at_the_start_and_after_a_lost_life(fire_reset, fire_on_life_loss, lives) -> None:
    envs = make("Breakout", 2, fire_reset=bool(fire_reset), fire_on_life_loss=bool(fire_on_life_loss))
    envs.reset()
    played = [envs.step(np.zeros(2, np.int32)) for _ in range(150)]  # nobody asks for FIRE
    np.testing.assert_array_equal(sum(step.life_lost.astype(int) for step in played), lives)
    assert any(step.terminated.any() for step in played) == (lives == 5)  # a game has five


def test_fire_is_pressed_in_the_step_after_a_lost_life_and_in_no_other() -> None:
    """What is asked in that step is not done: the same game follows from any action."""

    def play_once(asked_after: int) -> list[VecStep]:
        envs = make("Breakout", 1)
        envs.reset()
        played = [envs.step(np.zeros(1, np.int32))]
        while len(played) < 60:
            played.append(envs.step(np.full(1, asked_after if played[-1].life_lost[0] else 0)))
        return played

    assert sum(step.life_lost[0] for step in play_once(0)) >= 1
    assert_same(play_once(0), play_once(3))
    envs = make("Breakout", 1)
    envs.reset()
    moved = [envs.step(np.full(1, 3)) for _ in range(10)]  # before any life is lost, what is asked is done
    assert any((a.observations != b.observations).any() for a, b in zip(moved, play_once(0), strict=False))


def test_a_state_of_the_moment_a_life_is_lost_is_restored_with_its_fire() -> None:
    envs, other = make("Breakout", 2), make("Breakout", 2)
    envs.reset()
    while not envs.step(np.zeros(2, np.int32)).life_lost.any():
        pass
    assert other.restore(envs.state())[1] == 0
    assert_same(play(envs, 60)[1], play(other, 60)[1])


def test_the_frame_limit_truncates_and_does_not_terminate() -> None:
    envs = make("Pong", max_frames_per_episode=40)
    envs.reset()
    _, steps = play(envs, 25)
    ended = [t for t, step in enumerate(steps) if step.truncated.all()]
    assert ended == [9, 19]
    assert not any(step.terminated.any() for step in steps)
    assert {episode.length for step in steps for episode in step.episodes} == {10}
    assert {episode.frames for step in steps for episode in step.episodes} == {40}
    assert not starts(steps[9].final_observations).any() and starts(steps[9].observations).all()


def test_the_number_of_threads_changes_nothing() -> None:
    results = []
    for threads in (0, 1, 99):
        envs = make("Breakout", 3, threads=threads, sticky_action_probability=0.25)
        envs.reset()
        results.append(play(envs, 60)[1])
    for other in results[1:]:
        assert_same(results[0], other)


@pytest.mark.parametrize(
    ("steps", "reseed_after"),
    [
        (420, 250),
        *(pytest.param(*x, marks=pytest.mark.integration) for x in [(1, 0), (150, 10_000), (420, 0), (420, 10_000)]),
    ],
)
def test_replay_restores_bit_for_bit_with_sticky_actions_and_noops(steps: int, reseed_after: int) -> None:
    settings = {"sticky_action_probability": 0.25, "noop_max": 30, "reseed_after": reseed_after}
    envs = make("Breakout", 2, **settings)
    envs.reset()
    played = play(envs, steps)[1]
    state = envs.state()
    assert state["episode_numbers"].max() > 0 or steps < 200
    assert (len(set(state["series_lengths"])) > 1) == (steps == 420 and reseed_after < 420)
    other = make("Breakout", 2, **settings)
    restored, lost = other.restore(state)
    assert lost == 0
    np.testing.assert_array_equal(restored, played[-1].observations)
    for key, array in other.state().items():
        np.testing.assert_array_equal(array, state[key])
    assert_same(play(envs, 100, seed=1)[1], play(other, 100, seed=1)[1])


def test_what_the_rest_of_the_program_is_told() -> None:
    envs = make("ALE/SpaceInvaders-v5", 2, frame_skip=3, frame_stack=2, screen_size=64)
    assert envs.name == "SpaceInvaders"
    assert (envs.num_envs, envs.num_actions, envs.frames_per_step) == (2, 6, 3)
    assert envs.observation_space.shape == (64, 64, 2) == envs.reset().shape[1:]
    assert make("SpaceInvaders", 1, full_action_space=True).num_actions == 18


@pytest.mark.parametrize(
    ("env_id", "clipping", "clips"),
    [("Pong", "auto", True), ("Catch", "auto", False), ("Catch", "sign", True), ("Pong", "none", False)],
)
def test_rewards_are_clipped_for_the_loss_on_atari_only_unless_configured(
    env_id: str, clipping: str, clips: bool
) -> None:
    assert clips_rewards(EnvConfig(id=env_id, reward_clipping=clipping)) is clips


def test_there_is_one_thread_for_each_core_that_this_process_may_use() -> None:
    """Not for each that the machine has: then the workers of `a2c launch` would crowd each other's cores."""
    program = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from a2c.config import EnvConfig
from a2c.envs import make_vec_env
before = len(os.listdir("/proc/self/task"))
envs = make_vec_env(EnvConfig(id="Pong", num_envs=2), seed=0)
print(len(os.listdir("/proc/self/task")) - before)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert result.stdout == "1\n"
