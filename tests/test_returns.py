"""Returns and advantages against explicit O(T^2) sums in float64, over inputs that cross every branch."""

import numpy as np
import pytest
import tensorflow as tf

from a2c.algorithms.returns import (
    Moments,
    explained_variance,
    gae,
    moments,
    n_step_returns,
    normalize,
    pooled,
    reverse_recursion,
)

GAMMA = 0.9
T = 7
# what happens in the columns of `crossing_batch`; row: event
TERMINATED, TRUNCATED, CUT, TRUNCATED_AND_CUT = "terminated", "truncated", "cut", "truncated and cut"
COLUMNS = (
    {},
    {0: TERMINATED},
    {0: TRUNCATED},
    {0: CUT, 3: TRUNCATED_AND_CUT},
    {0: TRUNCATED_AND_CUT, 3: CUT},
    {3: TERMINATED},
    {2: TRUNCATED, 3: TRUNCATED},
    {6: TERMINATED},
    {6: TRUNCATED},
    {6: CUT},
    {6: TRUNCATED_AND_CUT},
    {1: TRUNCATED, 2: TERMINATED, 5: CUT},
    dict.fromkeys(range(T), TRUNCATED),
)
B = len(COLUMNS)


def crossing_batch(seed: int, gamma: float = GAMMA) -> dict[str, np.ndarray]:
    """Random numbers [T, B] with an end of every kind in the first, a middle and the last row."""
    rng = np.random.default_rng(seed)
    discounts, ends = np.full((T, B), gamma, np.float32), np.zeros((T, B), bool)
    final_values = np.zeros((T, B), np.float32)
    for column, events in enumerate(COLUMNS):
        for row, event in events.items():
            ends[row, column] = True
            if event != TRUNCATED:
                discounts[row, column] = 0.0
            if event in (TRUNCATED, TRUNCATED_AND_CUT):
                final_values[row, column] = rng.normal() + 3.0
    return {
        "rewards": rng.normal(size=(T, B)).astype(np.float32),
        "discounts": discounts,
        "ends": ends,
        "final_values": final_values,
        "values": rng.normal(size=(T, B)).astype(np.float32),
        "bootstrap_value": rng.normal(size=B).astype(np.float32),
    }


def naive_n_step_return(batch, t: int, b: int, steps: int) -> float:
    """The sum of at most `steps` discounted rewards from row t on, plus the discounted value after them."""
    length = len(batch["rewards"])
    total, weight = 0.0, 1.0
    for k in range(t, min(t + steps, length)):
        total += weight * float(batch["rewards"][k, b])
        weight *= float(batch["discounts"][k, b])
        if batch["ends"][k, b]:
            return total + weight * float(batch["final_values"][k, b])
    following = t + steps
    value = batch["values"][following, b] if following < length else batch["bootstrap_value"][b]
    return total + weight * float(value)


def naive_gae(batch, gae_lambda: float) -> np.ndarray:
    """Advantages as the exponentially weighted mean of all n-step advantages (GAE's definition, eq. 15 and 16).

    (1 - lambda) sum_{n < N} lambda^{n-1} A^(n) + lambda^{N-1} A^(N), where N rows are left of the episode or
    of the rollout. There is no delta and no recursion in here.
    """
    length, num_envs = batch["rewards"].shape
    advantages = np.zeros((length, num_envs))
    for b in range(num_envs):
        for t in range(length):
            left = next((k - t + 1 for k in range(t, length) if batch["ends"][k, b]), length - t)
            value = float(batch["values"][t, b])
            n_step = [naive_n_step_return(batch, t, b, n) - value for n in range(1, left + 1)]
            weights = [(1 - gae_lambda) * gae_lambda ** (n - 1) for n in range(1, left)] + [gae_lambda ** (left - 1)]
            advantages[t, b] = sum(w * a for w, a in zip(weights, n_step, strict=True))
    return advantages


def tensors(batch):
    return {name: tf.constant(array) for name, array in batch.items()}


def run_gae(batch, gae_lambda: float):
    return gae(**tensors(batch), gae_lambda=gae_lambda)


def run_n_step(batch):
    return n_step_returns(**{name: array for name, array in tensors(batch).items() if name != "values"})


def test_the_random_inputs_cross_every_branch():
    batch = crossing_batch(0)
    discounts, ends, final_values = batch["discounts"], batch["ends"], batch["final_values"]
    for kind in (
        ~ends,
        ends & (discounts == 0) & (final_values == 0),
        ends & (discounts > 0) & (final_values != 0),
        ends & (discounts == 0) & (final_values != 0),
    ):
        assert all(kind[row].any() for row in (0, 3, T - 1))
    assert (~ends).all(axis=0).any()
    assert ends.all(axis=0).any()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 0.95, 1.0])
def test_gae_is_the_weighted_mean_of_all_n_step_advantages(gae_lambda, seed):
    batch = crossing_batch(seed)
    targets = run_gae(batch, gae_lambda)
    wanted = naive_gae(batch, gae_lambda)
    np.testing.assert_allclose(targets.advantages, wanted, rtol=1e-5, atol=5e-6)
    np.testing.assert_allclose(targets.returns, wanted + batch["values"], rtol=1e-5, atol=5e-6)
    assert targets.advantages.dtype == targets.returns.dtype == tf.float32
    assert targets.advantages.shape == targets.returns.shape == (T, B)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_n_step_returns_are_the_explicit_sums_and_gae_of_lambda_one(seed):
    batch = crossing_batch(seed)
    wanted = [[naive_n_step_return(batch, t, b, T) for b in range(B)] for t in range(T)]
    np.testing.assert_allclose(run_n_step(batch), wanted, rtol=1e-5, atol=5e-6)
    np.testing.assert_allclose(run_gae(batch, 1.0).returns, wanted, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.95, 1.0])
def test_gamma_zero_gives_the_rewards(gae_lambda):
    batch = crossing_batch(3, gamma=0.0)
    np.testing.assert_array_equal(run_n_step(batch), batch["rewards"])
    advantages = run_gae(batch, gae_lambda).advantages
    np.testing.assert_allclose(advantages, batch["rewards"] - batch["values"], rtol=1e-6)


def one_row(discount: float, end: bool, final_value: float) -> dict[str, np.ndarray]:
    return {
        "rewards": np.float32([[2.0]]),
        "discounts": np.float32([[discount]]),
        "ends": np.array([[end]]),
        "final_values": np.float32([[final_value]]),
        "values": np.float32([[1.5]]),
        "bootstrap_value": np.float32([8.0]),
    }


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("discount", "end", "final_value", "wanted"),
    [
        (0.5, False, 0.0, 6.0),  # goes on: 2 + 0.5 * 8
        (0.0, True, 0.0, 2.0),  # terminated, or cut by a lost life
        (0.5, True, 4.0, 4.0),  # truncated: 2 + 0.5 * 4
        (0.0, True, 4.0, 2.0),  # truncated where a lost life cuts: the life counts
    ],
)
def test_a_rollout_of_one_row(discount, end, final_value, wanted, gae_lambda):
    batch = one_row(discount, end, final_value)
    assert run_gae(batch, gae_lambda).advantages.numpy() == [[wanted - 1.5]]
    assert run_gae(batch, gae_lambda).returns.numpy() == [[wanted]]
    assert run_n_step(batch).numpy() == [[wanted]]


def test_a_hand_made_example_with_ends_in_the_middle():
    """Four rows, gamma = lambda = 0.5; row 1 ends: column 0 terminated, column 1 truncated at V = 6, column 2 not."""
    batch = {
        "rewards": np.float32([[1, 1, 1], [2, 2, 2], [4, 4, 4], [0, 0, 0]]),
        "discounts": np.float32([[0.5, 0.5, 0.5], [0.0, 0.5, 0.5], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]),
        "ends": np.array([[False] * 3, [True, True, False], [False] * 3, [False] * 3]),
        "final_values": np.float32([[0, 0, 0], [0, 6, 0], [0, 0, 0], [0, 0, 0]]),
        "values": np.float32([[10, 10, 10], [8, 8, 8], [2, 2, 2], [4, 4, 4]]),
        "bootstrap_value": np.float32([12, 12, 12]),
    }
    # row 3: delta = 0 + 0.5 * 12 - 4 = 2; row 2: delta = 4 + 0.5 * 4 - 2 = 4, A = 4 + 0.25 * 2 = 4.5
    # row 1: delta = 2 - 8 = -6 | 2 + 0.5 * 6 - 8 = -3 | 2 + 0.5 * 2 - 8 = -5, A = -5 + 0.25 * 4.5 = -3.875
    # row 0: delta = 1 + 0.5 * 8 - 10 = -5, A = -5 + 0.25 * (-6 | -3 | -3.875)
    targets = run_gae(batch, 0.5)
    wanted = [[-6.5, -5.75, -5.96875], [-6.0, -3.0, -3.875], [4.5, 4.5, 4.5], [2.0, 2.0, 2.0]]
    np.testing.assert_array_equal(targets.advantages, wanted)
    np.testing.assert_array_equal(targets.returns, wanted + batch["values"])
    # n-step: row 3: 6; row 2: 4 + 3 = 7; row 1: 2 | 2 + 3 = 5 | 2 + 3.5 = 5.5; row 0: 1 + half of that
    wanted = [[2.0, 3.5, 3.75], [2.0, 5.0, 5.5], [7.0, 7.0, 7.0], [6.0, 6.0, 6.0]]
    np.testing.assert_array_equal(run_n_step(batch), wanted)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.95, 1.0])
def test_the_value_of_an_endless_task_is_the_fixed_point_because_truncation_bootstraps(gae_lambda):
    """Reward 1 for ever, cut by a time limit every 3 rows: V = 1 / (1 - gamma) must have no advantage."""
    value = np.float32(1 / (1 - GAMMA))
    ends = np.zeros((T, 2), bool)
    ends[2::3] = True
    batch = {
        "rewards": np.ones((T, 2), np.float32),
        "discounts": np.full((T, 2), GAMMA, np.float32),
        "ends": ends,
        "final_values": np.where(ends, value, np.float32(0)),
        "values": np.full((T, 2), value),
        "bootstrap_value": np.full(2, value),
    }
    np.testing.assert_allclose(run_gae(batch, gae_lambda).advantages, np.zeros((T, 2)), atol=2e-5)
    np.testing.assert_allclose(run_n_step(batch), np.full((T, 2), value), rtol=1e-5)
    # repeated evaluation from zero gets there too, and stays below without the bootstrap
    reached = {}
    for bootstraps in (True, False):
        v = np.zeros((), np.float32)
        for _ in range(110):  # 0.9 ** 110 is 9e-6
            final_values = np.where(ends, v, np.float32(0)) if bootstraps else np.zeros_like(batch["values"])
            values = np.full((T, 2), v)
            current = batch | {"final_values": final_values, "values": values, "bootstrap_value": np.full(2, v)}
            v = np.float32(np.mean(run_gae(current, gae_lambda).returns))
        reached[bootstraps] = v
    np.testing.assert_allclose(reached[True], value, rtol=1e-4)
    assert reached[False] < 0.5 * value


@pytest.mark.parametrize("kind", [TERMINATED, TRUNCATED])
@pytest.mark.parametrize("end_row", [0, 3, T - 1])
def test_nothing_of_the_next_episode_leaks_into_the_one_before(end_row, kind):
    batch = crossing_batch(4)
    batch["ends"][:] = False
    batch["discounts"][:] = GAMMA
    batch["final_values"][:] = 0
    batch["ends"][end_row] = True
    batch["discounts"][end_row] = 0.0 if kind == TERMINATED else GAMMA
    batch["final_values"][end_row] = 0.0 if kind == TERMINATED else 5.0
    other = {name: array.copy() for name, array in batch.items()}
    for name in ("rewards", "values"):
        other[name][end_row + 1 :] += 100.0
    other["bootstrap_value"] += 100.0
    before = slice(0, end_row + 1)
    for gae_lambda in (0.0, 0.95, 1.0):
        ours, theirs = run_gae(batch, gae_lambda), run_gae(other, gae_lambda)
        np.testing.assert_array_equal(ours.advantages[before], theirs.advantages[before])
        np.testing.assert_array_equal(ours.returns[before], theirs.returns[before])
        if end_row < T - 1:
            assert np.all(ours.returns[end_row + 1 :] != theirs.returns[end_row + 1 :])
    np.testing.assert_array_equal(run_n_step(batch)[before], run_n_step(other)[before])


def test_a_value_not_a_number_after_an_end_stays_there():
    """The last value of the rollout may be anything where the last row ended: it is selected away, not multiplied."""
    batch = crossing_batch(5)
    ended = batch["ends"][-1]
    batch["bootstrap_value"][ended] = np.nan
    advantages = run_gae(batch, 0.95).advantages.numpy()
    assert np.isfinite(advantages).all()


def test_no_gradient_flows_into_the_targets():
    batch = tensors(crossing_batch(6))
    watched = [batch["values"], batch["bootstrap_value"]]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(watched)
        targets = gae(**batch, gae_lambda=0.95)
        returns = n_step_returns(**{name: array for name, array in batch.items() if name != "values"})
    for target in (*targets, returns):
        assert tape.gradient(target, watched) == [None, None]


@pytest.mark.parametrize("gae_lambda", [0.95, 1.0])
def test_eager_and_graph_give_the_same(gae_lambda):
    batch = crossing_batch(7)
    compiled = tf.function(lambda inputs: gae(**inputs, gae_lambda=gae_lambda))
    for eager, graph in zip(run_gae(batch, gae_lambda), compiled(tensors(batch)), strict=True):
        np.testing.assert_allclose(graph, eager, rtol=1e-6, atol=1e-6)
    batch.pop("values")
    np.testing.assert_allclose(
        tf.function(lambda inputs: n_step_returns(**inputs))(tensors(batch)),
        n_step_returns(**tensors(batch)),
        rtol=1e-6,
        atol=1e-6,
    )


def test_reverse_recursion_of_literals():
    x = reverse_recursion(
        tf.constant([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]), tf.constant([[0.5, 0.5], [0.5, 0.0], [9, 9]])
    )
    np.testing.assert_array_equal(x, [[3.0, 2.0], [4.0, 2.0], [4.0, 4.0]])


@pytest.mark.parametrize("name", ["rewards", "discounts", "ends", "final_values", "values"])
@pytest.mark.parametrize("wrong", ["transposed", "extra axis", "one column", "flat"])
def test_wrong_shapes_are_refused_by_name(name, wrong):
    batch = crossing_batch(8)
    change = {
        "transposed": lambda x: x.T,
        "extra axis": lambda x: x[..., None],
        "one column": lambda x: x[:, :1],
        "flat": lambda x: x.reshape(-1),
    }[wrong]
    batch[name] = change(batch[name])
    shape = str(batch[name].shape)
    with pytest.raises(ValueError, match=r"^gae: ") as error:
        run_gae(batch, 0.95)
    assert name in str(error.value)
    assert shape in str(error.value)
    assert str((T, B)) in str(error.value)
    if name != "values":
        with pytest.raises(ValueError, match=r"^n_step_returns: ") as error:
            run_n_step(batch)
        assert name in str(error.value)
        assert shape in str(error.value)


@pytest.mark.parametrize("shape", [(B, 1), (1, B), (T,), (1,), ()])
def test_a_bootstrap_value_of_another_shape_is_refused(shape):
    batch = crossing_batch(9)
    batch["bootstrap_value"] = np.zeros(shape, np.float32)
    for run in (lambda: run_gae(batch, 0.95), lambda: run_n_step(batch)):
        with pytest.raises(ValueError, match="bootstrap_value") as error:
            run()
        assert str(shape) in str(error.value)
        assert f"({B},)" in str(error.value)


def test_reverse_recursion_refuses_unequal_shapes():
    with pytest.raises(ValueError, match=r"deltas has shape \(3, 2\) but decays has shape \(3, 1\)"):
        reverse_recursion(tf.zeros((3, 2)), tf.zeros((3, 1)))


def test_normalize_against_numpy():
    """Over all entries, population deviation: literals first, where a deviation over n - 1 would give 1.2247."""
    normal = normalize(tf.constant([[1.0, 3.0], [1.0, 3.0]]))
    np.testing.assert_allclose(normal, [[-1.0, 1.0], [-1.0, 1.0]], rtol=1e-6)
    x = np.random.default_rng(0).normal(5.0, 3.0, size=(T, B)).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(normalize(tf.constant(x)), (wide - wide.mean()) / wide.std(), rtol=1e-4, atol=1e-5)


def test_normalize_of_equal_advantages_is_zero_and_not_infinite():
    np.testing.assert_array_equal(normalize(tf.fill((T, B), 2.5)), np.zeros((T, B)))


def fit(values, returns):
    return explained_variance(moments(returns - values), moments(returns)).numpy()


def test_explained_variance_of_known_cases():
    returns = tf.constant([[1.0, 2.0], [3.0, 6.0]])
    assert fit(returns, returns) == pytest.approx(1.0)
    assert fit(returns + 7.0, returns) == pytest.approx(1.0)  # a constant error has no variance
    assert fit(tf.fill((2, 2), 3.0), returns) == pytest.approx(0.0)
    assert fit(-returns, returns) == pytest.approx(-3.0)  # residual 2R: 1 - 4
    assert fit(returns / 2, returns) == pytest.approx(0.75)
    assert np.isfinite(fit(returns, tf.ones((2, 2))))


def test_pooled_moments_are_those_of_the_union():
    sets = np.random.default_rng(0).normal(3.0, 2.0, (5, 4, 7)).astype(np.float32) * np.arange(1, 6)[:, None, None]
    each = [moments(tf.constant(x, tf.float32)) for x in sets]
    union = pooled(Moments(tf.stack([m.mean for m in each]), tf.stack([m.variance for m in each])))
    np.testing.assert_allclose([union.mean, union.variance], [sets.mean(), sets.var()], rtol=1e-5)
    alone = pooled(Moments(each[0].mean[None], each[0].variance[None]))
    np.testing.assert_array_equal([alone.mean, alone.variance], each[0])
