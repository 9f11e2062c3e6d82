"""The sum tree against a plain cumulative sum."""

import numpy as np
import pytest

from a2c.data.sum_tree import WIDTH, SumTree


@pytest.mark.parametrize("size", [1, 2, WIDTH, WIDTH + 1, 5000, WIDTH**3 + 7])
def test_it_finds_what_a_cumulative_sum_finds(size):
    rng = np.random.default_rng(size)
    tree, weights = SumTree(size), np.zeros(size)
    for _ in range(20):
        indices = rng.integers(size, size=50)
        values = rng.integers(0, 5, size=50).astype(float)  # whole numbers: sums in any order are the same
        tree.set(indices, values)
        weights[indices] = values
    weights[0] = 3
    tree.set(np.array([0]), 3.0)
    np.testing.assert_array_equal(tree.weights, weights)
    assert tree.total == weights.sum()
    masses = np.concatenate([rng.random(200) * weights.sum(), np.arange(min(100, weights.sum()))])
    np.testing.assert_array_equal(tree.find(masses), np.searchsorted(np.cumsum(weights), masses, side="right"))


def test_the_sums_are_a_function_of_the_weights_to_the_bit():
    rng = np.random.default_rng(0)
    values = rng.random(3000) ** 5
    whole, piecewise = SumTree(3000), SumTree(3000)
    whole.set(np.arange(3000), values)
    for indices in np.array_split(rng.permutation(3000), 100):
        piecewise.set(indices, rng.random(len(indices)))
        piecewise.set(indices, values[indices])
    assert whole.total == piecewise.total
    masses = rng.random(5000) * whole.total
    np.testing.assert_array_equal(whole.find(masses), piecewise.find(masses))


def test_what_weighs_nothing_is_never_found():
    """Even a mass at the total itself, and sums that were rounded."""
    rng = np.random.default_rng(1)
    tree = SumTree(2000)
    tree.set(rng.choice(2000, 400, replace=False), 10.0 ** rng.uniform(-12, 3, 400))
    edges = np.cumsum(tree.weights)
    masses = np.concatenate([[0.0, tree.total, np.nextafter(tree.total, 0)], edges, np.nextafter(edges, 0)])
    assert (tree.weights[tree.find(masses)] > 0).all()
