"""The vector environment's book-keeping, on environments small enough to be checked by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from a2c.config import EnvConfig, UserError
from a2c.data.rollout import VecStep
from a2c.envs import VecEnv, episode_seed, make_simulator, make_vec_env

CATCH_STEPS = 11  # of one episode, on 12 rows


class Strict(gym.Env):
    """Ends at its third action 0, pays nothing, and must not be stepped after its end."""

    observation_space = Box(0, 1000, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.steps, self.left = 0, 3
        return np.zeros(1, np.float32), {}

    def step(self, action: int):
        assert self.left > 0, "stepped after its end"
        self.steps += 1
        self.left -= action == 0
        return np.full(1, self.steps, np.float32), 0.0, self.left == 0, False, {}


gym.register("test/Strict-v0", Strict)


def make(env_id: str, num_envs: int = 3, *, seed: int = 0, stream: str = "train") -> VecEnv:
    return make_vec_env(EnvConfig(id=env_id, num_envs=num_envs), seed=seed, stream=stream)


def make_series(env_id: str, num_envs: int, reseed_after: int) -> VecEnv:
    simulator = make_simulator(EnvConfig(id=env_id, num_envs=num_envs))
    return VecEnv(simulator, name="", seed=0, stream="train", reseed_after=reseed_after)


def play(envs: VecEnv, steps: int, seed: int = 0) -> list[VecStep]:
    rng = np.random.default_rng(seed)
    return [envs.step(rng.integers(envs.num_actions, size=envs.num_envs)) for _ in range(steps)]


def assert_same(left: list[VecStep], right: list[VecStep]) -> None:
    for a, b in zip(left, right, strict=True):
        assert a.episodes == b.episodes
        for x, y in zip(a[:-1], b[:-1], strict=True):
            np.testing.assert_array_equal(x, y)


def test_the_step_that_ends_an_episode_shows_the_next_ones_start_and_the_true_last_observation() -> None:
    envs = make("Catch", 1)
    first = envs.reset()
    *_, before_last, last = play(envs, CATCH_STEPS)
    assert last.terminated.all() and not last.truncated.any()
    assert (first[0, :7] == 255).any() and (last.observations[0, :7] == 255).any()  # a ball in the top row
    assert not (last.final_observations[0, :77] == 255).any()  # ball and paddle in the bottom row
    assert before_last.observations is before_last.final_observations


def test_no_step_is_lost_between_episodes() -> None:
    envs = make("Catch")
    envs.reset()
    steps = play(envs, 4 * CATCH_STEPS)
    ends = [t for t, step in enumerate(steps) if step.terminated.any()]
    assert ends == [CATCH_STEPS * n - 1 for n in (1, 2, 3, 4)]
    episodes = [episode for step in steps for episode in step.episodes]
    assert [episode.number for episode in episodes if episode.env_index == 1] == [0, 1, 2, 3]
    assert {episode.length for episode in episodes} == {CATCH_STEPS} == {episode.frames for episode in episodes}


def test_an_episodes_return_is_the_sum_of_its_rewards() -> None:
    envs = make("Chain")
    envs.reset()
    steps = play(envs, 64)
    rewards = np.array([step.rewards for step in steps], np.float64).reshape(2, 32, 3).sum(axis=1)
    found = [episode.episode_return for step in steps for episode in step.episodes]
    np.testing.assert_allclose(found, rewards.ravel(), rtol=1e-6)
    assert steps[0].rewards.dtype == np.float32


def test_reset_starts_again_from_episode_0() -> None:
    envs = make("CartPole-v1")
    first = envs.reset()
    steps = play(envs, 60)
    np.testing.assert_array_equal(envs.reset(), first)
    assert_same(play(envs, 60), steps)


@pytest.mark.parametrize("env_id", ["Catch", "CartPole-v1", "Pong"])
def test_returned_arrays_are_the_callers_to_keep(env_id: str) -> None:
    envs = make(env_id)
    kept = [envs.reset(), *(array for step in play(envs, 30) for array in step[:-1])]
    copies = [array.copy() for array in kept]
    play(envs, 30)
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_seeds_are_hashed_so_that_nothing_shares_a_stream() -> None:
    seeds = {
        episode_seed(seed, stream, index, number)
        for seed in (0, 1, 2, 2**32, 2**32 + 1, 2**63 - 1, 2**63)
        for stream in ("train", "evaluation")
        for index in range(8)
        for number in range(8)
    }
    assert len(seeds) == 7 * 2 * 8 * 8
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_episode_seeds_never_change_between_versions() -> None:
    assert episode_seed(0, "train", 0, 0) == 702569604
    assert episode_seed(2**63, "evaluation", 15, 1000) == 403450874


def test_streams_and_run_seeds_play_different_episodes() -> None:
    first = [
        make("CartPole-v1", 2, seed=seed, stream=stream).reset()
        for seed, stream in ((0, "train"), (1, "train"), (0, "evaluation"), (2**63 - 1, "train"))
    ]
    assert len({row.tobytes() for observations in first for row in observations}) == 8


def test_a_series_ends_with_the_episode_that_makes_it_long_enough() -> None:
    envs = make_series("CartPole-v1", 3, 50)
    envs.reset()
    episodes = [episode for step in play(envs, 600) for episode in step.episodes]
    for index in range(3):
        first, played = 0, 0
        for number, episode in enumerate(episode for episode in episodes if episode.env_index == index):
            assert episode.number == number
            assert episode.seed == episode_seed(0, "train", index, first)
            played += episode.length
            if played >= 50:
                first, played = number + 1, 0
    assert len({episode.seed for episode in episodes}) < len(episodes)


def test_episodes_of_a_series_go_on_with_its_random_numbers() -> None:
    envs = make_series("CartPole-v1", 1, 10_000)
    starts = [envs.reset(), *(step.observations for step in play(envs, 200) if step.episodes)]
    assert len({start.tobytes() for start in starts}) == len(starts) > 5


@pytest.mark.parametrize("env_id", ["Catch", "Chain", "CartPole-v1"])
@pytest.mark.parametrize("steps", [0, 1, 37, 150])
@pytest.mark.parametrize("reseed_after", [0, 40, 10_000])
def test_restore_goes_on_bit_for_bit(env_id: str, steps: int, reseed_after: int) -> None:
    envs = make_series(env_id, 4, reseed_after)
    envs.reset()
    observations = ([envs.reset()] + [step.observations for step in play(envs, steps)])[-1]
    state = envs.state()
    other = make_series(env_id, 4, reseed_after)
    assert_restored(other, state, observations)
    assert_same(play(envs, 80, seed=1), play(other, 80, seed=1))


def assert_restored(envs: VecEnv, state: dict, observations: np.ndarray) -> None:
    restored, lost = envs.restore(state)
    assert lost == 0
    np.testing.assert_array_equal(restored, observations)


def test_an_environment_that_ends_while_it_waits_for_the_others_does_no_harm() -> None:
    envs = make("test/Strict-v0")
    envs.reset()
    for t in range(20):
        step = envs.step(np.array([1, int(t < 13), int(t < 6)]))
    np.testing.assert_array_equal(envs.state()["series_lengths"], [20, 1, 2])
    other = make("test/Strict-v0")  # two of its environments wait for 19 and 18 steps, and end meanwhile
    assert_restored(other, envs.state(), step.observations)
    assert_same(play(envs, 40), play(other, 40))


def other_actions(state: dict) -> None:
    state["series_actions"][:5] ^= 1


def other_returns(state: dict) -> None:
    state["episode_returns"][0] += 1


def other_observations(state: dict) -> None:
    state["observation_digests"][0] ^= 1


def other_numbers(state: dict) -> None:
    state["episode_numbers"][0] += 7


@pytest.mark.parametrize("change", [other_actions, other_returns, other_observations, other_numbers])
def test_an_environment_that_is_elsewhere_after_its_replay_starts_its_next_episode(change) -> None:
    """As one does that is not a function of its seed and actions; the others resume exactly."""
    envs = make("CartPole-v1")
    envs.reset()
    for t in range(12):
        step = envs.step(np.full(3, t % 2))
    state = envs.state()
    change(state)
    number = int(state["episode_numbers"][0])
    other = make("CartPole-v1")
    observations, lost = other.restore(state)
    assert lost == 1
    np.testing.assert_array_equal(observations[1:], step.observations[1:])
    after = other.state()
    np.testing.assert_array_equal(after["series_lengths"], [0, 12, 12])
    assert after["episode_numbers"][0] == after["series_numbers"][0] == number + 1
    assert after["episode_returns"][0] == 0
    # the very first observation of that episode, wherever it is started
    again = make("CartPole-v1")
    again.restore({**after, "series_numbers": after["episode_numbers"]})
    np.testing.assert_array_equal(again.state()["observation_digests"], after["observation_digests"])


def test_restore_works_on_an_environment_that_has_been_used() -> None:
    envs = make("CartPole-v1")
    envs.reset()
    play(envs, 50)
    state = envs.state()
    after = play(envs, 50, seed=1)
    envs.restore(state)
    assert_same(play(envs, 50, seed=1), after)


def test_state_is_small_and_plain() -> None:
    envs = make("Chain")
    envs.reset()
    play(envs, 40)
    state = envs.state()
    assert state["series_actions"].dtype == np.uint8 and state["series_actions"].shape == (3 * 8,)
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in state.values())


BAD_STATES = {
    "another number of environments": lambda state: {**state, "episode_numbers": np.zeros(4, np.int64)},
    "a missing key": lambda state: {key: state[key] for key in state if key != "series_actions"},
    "an unknown key": lambda state: {**state, "more": np.zeros(1)},
    "another dtype": lambda state: {**state, "series_actions": state["series_actions"].astype(np.float32)},
    "actions of two dimensions": lambda state: {**state, "series_actions": state["series_actions"][:, None]},
    "an action out of range": lambda state: {**state, "series_actions": state["series_actions"] + np.uint8(2)},
    "too few actions": lambda state: {**state, "series_actions": state["series_actions"][:-1]},
    "a negative length": lambda state: {
        **state,
        "series_lengths": np.array([-1, 1, len(state["series_actions"])]),
    },
    "a negative number": lambda state: {
        **state,
        **{key: state[key] - 9 for key in ("episode_numbers", "series_numbers")},
    },
    "an episode beyond all numbers": lambda state: {**state, "episode_numbers": np.full(3, 2**63 - 1)},
    "a series before its episode": lambda state: {**state, "series_numbers": state["series_numbers"] + 1},
    "no arrays": lambda state: dict.fromkeys(state, "text"),
    "nothing": lambda state: {},
}


@pytest.mark.parametrize("spoil", BAD_STATES.values(), ids=BAD_STATES)
def test_a_state_that_does_not_fit_is_refused(spoil) -> None:
    envs = make("CartPole-v1")
    envs.reset()
    for t in range(230):  # nearly balanced poles, so that other episodes end sooner under these actions
        envs.step(np.full(3, t % 2))
        if min(envs.state()["series_lengths"]) > 25:
            break
    with pytest.raises(UserError, match=r"^The checkpoint does not fit this environment: [^\n]*\.$"):
        make("CartPole-v1").restore(spoil(envs.state()))


@pytest.mark.parametrize("actions", [[0, 1], [0, 1, 3], [-1, 0, 0], [0.0, 1.0, 1.0], [[0, 1, 1]]])
def test_actions_that_do_not_exist_are_refused_and_never_reach_the_emulator(actions: list[float]) -> None:
    envs = make("Catch")
    envs.reset()
    with pytest.raises(ValueError, match="actions must be"):
        envs.step(np.array(actions))


def test_it_closes_at_the_end_of_a_with_block() -> None:
    with make("CartPole-v1") as envs:
        assert envs.reset().shape == (3, 4)
