"""The replay against the environments' own observations, and against an oracle that keeps everything."""

import functools
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from a2c.config import build_config
from a2c.data.collector import RolloutCollector
from a2c.data.replay import Replay, Samples, stack_of
from a2c.data.rollout import Rollout
from a2c.envs import make_env_groups


def collected(env: dict[str, Any], rollouts: int, length: int = 7) -> tuple[Any, list[Rollout]]:
    """Rollouts of random actions, and their space."""
    config = build_config({"env": {"num_envs": 3, **env}}, where="test").env
    with make_env_groups(config, seed=5, groups=1) as envs:
        rng = np.random.default_rng(0)
        draw = lambda observations, seed: (rng.integers(envs.num_actions, size=3, dtype=np.int32), {})  # noqa: E731
        collector = RolloutCollector(envs, draw, {}, rollout_length=length, action_seed=0)
        return (envs.observation_space, stack_of(config)), [collector.collect()[0] for _ in range(rollouts)]


class Oracle:
    """All rows of all rollouts, with whole observations."""

    def __init__(self, rollouts: list[Rollout]) -> None:
        joined = {name: np.concatenate([getattr(r, name) for r in rollouts]) for name in Rollout._fields[1:6]}
        self.observations = np.concatenate([*(r.observations[:-1] for r in rollouts), rollouts[-1].observations[-1:]])
        self.facts = joined
        cut = np.argwhere(joined["truncated"])
        lasts = np.concatenate([r.last_observations for r in rollouts])
        self.last = {(t, b): last for (t, b), last in zip(map(tuple, cut.tolist()), lasts, strict=True)}

    def check(self, samples: Samples, rows: np.ndarray, envs: np.ndarray, n: int) -> None:
        for i, (t, b) in enumerate(zip(rows.tolist(), envs.tolist(), strict=True)):
            np.testing.assert_array_equal(samples.observations[i], self.observations[t, b])
            assert samples.actions[i] == self.facts["actions"][t, b]
            end = next((k for k in range(n) if self.facts["terminated"][t + k, b] or (t + k, b) in self.last), None)
            for k in range(n if end is None else end + 1):
                for name in ("rewards", "terminated", "truncated", "life_lost"):
                    assert getattr(samples, name)[k, i] == self.facts[name][t + k, b]
            if end is None:
                np.testing.assert_array_equal(samples.next_observations[i], self.observations[t + n, b])
            elif (t + end, b) in self.last:
                np.testing.assert_array_equal(samples.next_observations[i], self.last[t + end, b])


ENVS = [
    {"id": "Breakout", "screen_size": 24, "max_frames_per_episode": 100},
    {"id": "Breakout", "screen_size": 24, "backend": "wrappers", "frame_stack": 2, "max_frames_per_episode": 60},
    {"id": "Breakout", "screen_size": 24, "frame_stack": 1, "max_frames_per_episode": 60},
    {"id": "Catch", "screen_size": 24},
    {"id": "Chain"},
]


@functools.cache
def played(index: int) -> tuple[Any, list[Rollout]]:
    """30 rollouts in an environment of ENVS; all tests read them, and none writes."""
    return collected(ENVS[index], 30)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("index", range(len(ENVS)), ids=["-".join(map(str, env.values())) for env in ENVS])
def test_samples_have_the_bits_of_the_environment(index, n):
    """Resets, time limits, lost lives and a ring that is wrapped round several times."""
    (space, stack), rollouts = played(index)
    replay, oracle = Replay(space, capacity=100, num_envs=3, n_step=n, stack=stack), Oracle(rollouts)
    ends = {name: int(array.sum()) for name, array in oracle.facts.items() if name in ("terminated", "truncated")}
    assert sum(ends.values()) >= 3
    seen = set()
    for number, rollout in enumerate(rollouts, 1):
        replay.add(rollout)
        assert replay.size == 3 * min(33, 7 * number - n + 1)
        samples = replay.sample(64, np.random.default_rng(number))
        slots, envs = np.divmod(samples.places, 3)
        rows = replay.oldest + (slots - replay.oldest) % replay.slots
        assert rows.max() + n <= replay.total
        oracle.check(samples, rows, envs, n)
        seen |= set(zip(rows.tolist(), envs.tolist(), strict=True))
    assert len(seen) > 300


@pytest.mark.parametrize("alpha", [None, 0.6])
@pytest.mark.parametrize("index", [0, 4], ids=["Breakout", "Chain"])
def test_what_is_read_and_written_again_gives_the_same_samples(index, alpha):
    """Wrapped round or not, in pieces of any length, as a log of segments writes it."""
    (space, stack), rollouts = played(index)
    make = lambda: Replay(space, capacity=60, num_envs=3, n_step=2, stack=stack, alpha=alpha)  # noqa: E731
    replay, pieces = make(), []
    for number, rollout in enumerate(rollouts[:20]):
        before = replay.total
        replay.add(rollout)
        if alpha:
            samples = replay.sample(8, np.random.default_rng(number))
            replay.reprioritise(samples.places, np.linspace(0, 3, 8, dtype=np.float32))
        for first in range(before, replay.total, 3):
            end = min(first + 3, replay.total)
            pieces.append((first, end, replay.read(first, end)))
        if number not in (1, 4, 19):
            continue
        again = make()
        again.restore(replay.state())
        for first, end, rows in pieces:
            again.write(first, end, rows)
        for name, array in replay.state().items():
            np.testing.assert_array_equal(again.state()[name], array, err_msg=name)
        for seed in range(20):
            for one, other in zip(*(r.sample(16, np.random.default_rng(seed)) for r in (replay, again)), strict=True):
                np.testing.assert_array_equal(one, other)


def test_what_does_not_fit_is_not_taken():
    (space, _), (rollout, *_) = played(4)
    replay = Replay(space, capacity=60, num_envs=3, alpha=0.5)
    replay.add(rollout)
    rows, state = replay.read(0, 7), replay.state()
    for change in (
        {"frames": rows["frames"][:, :2]},
        {"rewards": rows["rewards"].astype(np.float64)},
        {"last": rows["frames"]},
    ):
        with pytest.raises(ValueError, match=r"and should be"):
            replay.write(0, 7, {**rows, **change})
    for change in ({"total": np.array(-1)}, {"priorities": -state["priorities"]}, {"ages": state["ages"][:1]}):
        with pytest.raises(ValueError, match=r"total|priorities|ages"):
            Replay(space, capacity=60, num_envs=3, alpha=0.5).restore({**state, **change})


def numbered(total: int, envs: int = 2, seed: int = 0) -> Rollout:
    """Rows whose observation is their number."""
    rng = np.random.default_rng(seed)
    numbers = np.arange(total + 1, dtype=np.float32)[:, None, None] + np.arange(envs)[:, None] / 4
    nothing = np.zeros((total, envs), np.bool_)
    actions = rng.integers(3, size=(total, envs), dtype=np.int32)
    return Rollout(numbers, actions, nothing.astype(np.float32), nothing, nothing, nothing, np.zeros((0, 1)), {})


def filled(**settings: Any) -> Replay:
    from gymnasium.spaces import Box

    replay = Replay(Box(0, 1, (1,), np.float32), capacity=40, num_envs=2, **settings)
    replay.add(numbered(13))
    replay.add(numbered(13))
    replay.add(numbered(13))
    return replay


def counts(replay: Replay, draws: int) -> np.ndarray:
    places = [replay.sample(32, np.random.default_rng(seed)).places for seed in range(draws)]
    return np.bincount(np.concatenate(places), minlength=replay.slots * 2)


def test_uniform_samples_are_uniform():
    replay = filled(n_step=3)
    found = counts(replay, 200)
    assert (found > 0).sum() == 40 == replay.size
    assert chisquare(found[found > 0]).pvalue > 0.001


def test_prioritised_samples_are_in_proportion():
    """To (error + 1e-6) ** alpha; those that were never learned from have the highest priority so far."""
    replay = filled(n_step=3, alpha=0.6)
    first = counts(replay, 50)
    assert (first > 0).sum() == 40
    places = np.flatnonzero(first > 0)
    errors = np.linspace(0.0, 2.0, 40)
    replay.reprioritise(places, errors.astype(np.float32))
    wanted = (errors + 1e-6) ** 0.6
    samples = replay.sample(32, np.random.default_rng(0))
    where = np.searchsorted(places, samples.places)
    np.testing.assert_allclose(samples.probabilities, wanted[where] / wanted.sum(), rtol=1e-5)
    found = counts(replay, 200)[places]
    assert (
        chisquare(
            found[wanted > 0.05], (wanted / wanted[wanted > 0.05].sum() * found[wanted > 0.05].sum())[wanted > 0.05]
        ).pvalue
        > 0.001
    )
    replay.add(numbered(1))
    new = (replay.total - 3) % replay.slots * 2 + np.arange(2)
    np.testing.assert_allclose(replay._tree.weights[new], wanted.max(), rtol=1e-5)
    assert counts(replay, 200)[new].min() >= 0.9 * 200 * 32 * wanted.max() / (wanted.sum() + 2 * wanted.max())


def test_priorities_of_what_is_overwritten_are_gone():
    replay = filled(n_step=3, alpha=1.0)
    for _ in range(5):
        replay.add(numbered(5))
        samples = replay.sample(64, np.random.default_rng(replay.total))
        slots = samples.places // 2
        rows = replay.oldest + (slots - replay.oldest) % replay.slots
        assert rows.max() <= replay.total - 3
        assert (replay._tree.weights > 0).sum() == replay.size == 40
