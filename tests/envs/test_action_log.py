"""The log of the running episodes against a plain list for each environment."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from a2c.envs.action_log import ActionLog


def test_it_holds_the_running_episodes_and_forgets_the_others() -> None:
    rng = np.random.default_rng(0)
    log, lists = ActionLog(3, 18), [[], [], []]
    for step in range(10_000):
        actions = rng.integers(18, size=3)
        log.append(actions)
        ended = rng.random(3) < (0.001, 0.02, 0.5)
        log.restart(ended)
        for index in range(3):
            lists[index] = [] if ended[index] else [*lists[index], actions[index]]
        if step % 500 == 0:
            packed, lengths = log.pack()
            np.testing.assert_array_equal(packed, np.concatenate(lists))
            np.testing.assert_array_equal(lengths, [len(episode) for episode in lists])


def test_its_memory_is_bounded_by_the_longest_running_episode() -> None:
    log = ActionLog(2, 4)
    for step in range(50_000):
        log.append(np.zeros(2, np.int32))
        log.restart(np.array([step % 700 == 0, step % 900 == 0]))
    assert sys.getsizeof(log._rows) <= 4 * 2048


@pytest.mark.parametrize(("num_actions", "dtype"), [(2, np.uint8), (256, np.uint8), (257, np.uint16)])
def test_it_takes_the_smallest_dtype(num_actions: int, dtype: type) -> None:
    assert ActionLog(1, num_actions).pack()[0].dtype == dtype


def test_loaded_episodes_end_together() -> None:
    log = ActionLog(3, 9)
    log.load(np.array([1, 2, 3, 4, 5, 6], np.uint8), np.array([1, 0, 5]))
    rows, starts = log.aligned()
    np.testing.assert_array_equal(starts, [4, 5, 0])
    np.testing.assert_array_equal(rows[:, 2], [2, 3, 4, 5, 6])
    assert rows[4, 0] == 1
    np.testing.assert_array_equal(log.pack()[0], [1, 2, 3, 4, 5, 6])
