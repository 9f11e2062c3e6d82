"""PPO against whole updates written by hand in NumPy; its order of rows, its schedule, and A2C as its special case."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import VECTORS, A, make_rollout, run_config
from numpy_reference import NumpyNetwork, NumpyPPO
from updates import set_weights, weights_of

from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.losses import approximate_kl, clipped_surrogate_loss, clipped_value_loss
from a2c.algorithms.objective import Objective
from a2c.algorithms.on_policy import outcomes
from a2c.algorithms.ppo import PPO
from a2c.config import UserError
from a2c.execution.replicas import Replicas

pytestmark = pytest.mark.usefixtures("exact_numerics")
T, B = 8, 4
MODEL = {"name": "mlp", "hidden_sizes": (8, 6)}
ADAM = {"name": "adam", "learning_rate": 0.02, "epsilon": 1e-3, "max_grad_norm": 0.3}
FAST = {"gamma": 0.9, "value_loss_coef": 0.4, "entropy_coef": 0.05, "clip_range": 0.15}


def ppo(mode: str = "graph", optimizer: dict[str, Any] = ADAM, total_env_steps: int = 10 * T * B, **algorithm) -> PPO:
    """With weights of a policy that prefers something: fresh ones hide mistakes."""
    settings = {"name": "ppo", "rollout_length": T, "num_minibatches": 2, "num_epochs": 3, **FAST, **algorithm}
    config = run_config(MODEL, optimizer, mode, num_envs=B, env={"reward_clipping": "none"}, **settings)
    built = build_algorithm(config.model_copy(update={"total_env_steps": total_env_steps}), VECTORS, A)
    set_weights(built.policy.model)
    return built


def collected(algorithm: PPO, seed: int):
    """A rollout whose policy is near that of `algorithm`, so that some ratios are clipped and some are not."""
    rollout = make_rollout(seed, t=T, b=B)
    logits, values = algorithm.policy.model(rollout.observations[:-1].reshape(T * B, -1))
    noise = np.random.default_rng(seed)
    said = {
        "logits": (logits.numpy() + noise.normal(0, 0.2, logits.shape)).reshape(T, B, A).astype(np.float32),
        "values": (values.numpy() + noise.normal(0, 0.3, values.shape)).reshape(T, B).astype(np.float32),
    }
    return rollout._replace(said=said)


def seen(algorithm: PPO, rollout):
    return outcomes(rollout, algorithm.policy.value, Objective(0.9, cut_on_life_loss=True, clip_rewards=False))


def orders(algorithm: PPO, updates: int) -> list[np.ndarray]:
    """The rows [n, B] of each minibatch: the values are the numbers of the rows."""
    rollout = make_rollout(0, t=T, b=algorithm.learn.signature.actions.shape[1])
    numbers = np.broadcast_to(np.arange(T, dtype=np.float32)[:, None], rollout.actions.shape)
    batches = algorithm.batches(rollout._replace(said={**rollout.said, "values": numbers}), updates)
    found, metrics = [], None
    with suppress(StopIteration):
        while True:
            _, batch = batches.send(metrics)
            found.append(batch.values.astype(int))
            metrics = {"clip_fraction": 0.0, "approx_kl": 0.0}
    return found


def epochs(algorithm: PPO, updates: int) -> np.ndarray:
    """The rows of each epoch: [epochs, T, B]."""
    return np.concatenate(orders(algorithm, updates)).reshape(algorithm.config.num_epochs, T, -1)


SETTINGS = [
    ("eager", {}),
    ("graph", {"value_clip_range": 0.1}),
    ("graph", {"normalize_advantages": False, "gae_lambda": 1.0}),
    ("eager", {"value_clip_range": 0.1, "normalize_advantages": False, "num_minibatches": 4}),
]


@pytest.mark.parametrize(("mode", "settings"), SETTINGS, ids=str)
def test_whole_updates_are_those_of_the_numpy_reference(mode, settings):
    """Metrics and weights after each of 3 updates of 6 or 12 steps; float32 against float64."""
    algorithm = ppo(mode, **settings)
    config = run_config(MODEL, ADAM, mode).optimizer
    start = weights_of(algorithm.policy.model)
    reference = NumpyPPO(NumpyNetwork(start, config, config.max_grad_norm), algorithm.config)
    for number in range(3):
        rollout = collected(algorithm, number)
        wanted = reference.update(rollout, seen(algorithm, rollout), orders(algorithm, number))
        found = algorithm.update(rollout, number)
        assert found.gradient_steps == 3 * algorithm.config.num_minibatches
        assert set(wanted) == set(found.metrics) == {metric.name for metric in algorithm.config.METRICS}
        assert 0.05 < wanted["clip_fraction"] < 0.95
        for name, value in found.metrics.items():
            assert float(value) == pytest.approx(wanted[name], rel=1e-3, abs=5e-5), (number, name)
        for path, weight in weights_of(algorithm.policy.model).items():
            np.testing.assert_allclose(weight, reference.network.weights[path], rtol=1e-3, atol=1e-4, err_msg=path)
    assert max(np.abs(weight - start[path]).max() for path, weight in weights_of(algorithm.policy.model).items()) > 0.02


def test_eager_and_graph_make_the_same_updates_bit_for_bit():
    found = []
    for mode in ("eager", "graph"):
        algorithm, metrics = ppo(mode, value_clip_range=0.2), []
        for number in range(4):
            metrics.append(algorithm.update(collected(algorithm, number), number).metrics)
        variables = [v.numpy().tobytes() for group in algorithm.variables.values() for v in group]
        found.append((variables, [{name: float(x) for name, x in each.items()} for each in metrics]))
    assert found[0] == found[1]


def test_one_epoch_of_one_minibatch_without_clipping_is_a2c():
    """The ratios are 1: the gradient of the surrogate is that of log pi times the advantage. Within 1e-6."""
    rollout, moved = make_rollout(0, t=T, b=B), []
    for name in ("ppo", "a2c"):
        own = {"num_epochs": 1, "num_minibatches": 1, "clip_range": 1e6} if name == "ppo" else {}
        settings = {"gae_lambda": 0.9, "normalize_advantages": True, "rollout_length": T, "name": name, **own}
        config = run_config(MODEL, {"learning_rate": 1.0, "rho": 0.0, "max_grad_norm": 1e6}, "graph", **settings)
        algorithm = build_algorithm(config, VECTORS, A)
        logits, values = algorithm.policy.model(rollout.observations[:-1].reshape(T * B, -1))
        said = {"logits": logits.numpy().reshape(T, B, A), "values": values.numpy().reshape(T, B)}
        gradients: dict[str, np.ndarray] = {}

        def keep(stage: str, tensor: tf.Tensor, gradients=gradients) -> tf.Tensor:
            gradients[stage] = np.asarray(tensor)
            return tensor

        name, batch = next(algorithm.batches(rollout._replace(said=said), 0))
        algorithm.steps[name].apply(type(batch)(*map(tf.convert_to_tensor, batch)), keep)
        moved.append({stage: x for stage, x in gradients.items() if stage.startswith("gradient ")})
    assert moved[0].keys() == moved[1].keys()
    # PPO has the rows in another order
    for stage, gradient in moved[0].items():
        assert np.abs(gradient).max() > 1e-4
        np.testing.assert_allclose(gradient, moved[1][stage], atol=1e-6, err_msg=stage)


def test_an_epoch_takes_every_row_of_every_environment_once():
    algorithm = ppo(num_minibatches=4)
    assert [part.shape for part in orders(algorithm, 5)] == [(2, B)] * 4 * algorithm.config.num_epochs
    for rows in epochs(algorithm, 5):
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.tile(np.arange(T)[:, None], B))
        assert any(np.any(rows[:, 0] != rows[:, b]) for b in range(1, B))  # each in its own order


def test_the_order_is_a_function_of_the_seed_the_update_and_the_epoch():
    algorithm, again = ppo(num_epochs=4), ppo(num_epochs=4)
    config = run_config(MODEL, ADAM, "graph", num_envs=B, name="ppo", rollout_length=T)
    other = build_algorithm(config.model_copy(update={"seed": 1}), VECTORS, A)
    first, second, *_ = found = epochs(algorithm, 3)
    np.testing.assert_array_equal(found, epochs(again, 3))
    for rows in (second, epochs(algorithm, 4)[0], epochs(algorithm, 0)[3], epochs(other, 3)[0]):
        assert np.any(rows != first)


def test_workers_share_the_order_of_one_process_with_all_their_environments():
    alone = build_algorithm(run_config(MODEL, ADAM, "eager", num_envs=2 * B, name="ppo", rollout_length=T), VECTORS, A)
    joint = epochs(alone, 2)
    for index in (0, 1):
        worker = ppo("eager", num_minibatches=4)
        worker.replicas = Replicas()
        worker.replicas.workers, worker.replicas.index = 2, index
        own = epochs(worker, 2)
        np.testing.assert_array_equal(own, joint[: len(own), :, index * B :][..., :B])


def test_an_update_ends_when_the_policy_has_moved_too_far():
    """By the KL that the gradient step before found; without a target all steps are made."""
    rollout = collected(ppo(), 0)
    targets = (None, 1e-9, 0.0185, 1e9)
    steps = {target: ppo("eager", target_kl=target).update(rollout, 0).gradient_steps for target in targets}
    assert (steps[None], steps[1e-9], steps[1e9]) == (6, 1, 6)
    assert steps[0.0185] == 3  # it found 0.0181, 0.0100 and 0.0191


def test_rate_clip_range_and_entropy_term_fall_with_the_updates_made_however_many_steps_those_had():
    linear = {"clip_schedule": "linear", "entropy_schedule": "linear"}
    algorithm = ppo(optimizer={**ADAM, "schedule": "linear"}, total_env_steps=4 * T * B, **linear)
    rollout, rates, ranges, terms = collected(algorithm, 0), [], [], []
    for number in range(4):
        metrics = {name: float(value) for name, value in algorithm.update(rollout, number).metrics.items()}
        rates.append(metrics["learning_rate"])
        ranges.append(float(algorithm.clip_range))
        without = metrics["policy_loss"] + FAST["value_loss_coef"] * metrics["value_loss"]
        terms.append((without - metrics["total_loss"]) / metrics["entropy"])
    assert rates == pytest.approx([0.02, 0.015, 0.01, 0.005])
    assert ranges == pytest.approx([0.15, 0.1125, 0.075, 0.0375])
    assert terms == pytest.approx([0.05, 0.0375, 0.025, 0.0125], rel=1e-3)


@pytest.mark.parametrize("falling", ["rate", "clip", "entropy"])
def test_rate_clip_range_and_entropy_term_fall_apart_from_each_other(falling):
    schedules = dict.fromkeys(("rate", "clip", "entropy"), "constant") | {falling: "linear"}
    optimizer = {**ADAM, "schedule": schedules["rate"]}
    own = {"clip_schedule": schedules["clip"], "entropy_schedule": schedules["entropy"]}
    algorithm = ppo("eager", optimizer, 4 * T * B, **own)
    rate = float(algorithm.update(collected(algorithm, 0), 2).metrics["learning_rate"])
    assert rate == pytest.approx(0.01 if falling == "rate" else 0.02)
    assert float(algorithm.clip_range) == pytest.approx(0.075 if falling == "clip" else 0.15)
    assert float(algorithm.entropy_coef) == pytest.approx(0.025 if falling == "entropy" else 0.05)


@pytest.mark.parametrize(("update", "wanted"), [(0, 0.02), (12, 0.02), (14, 0.01), (15, 0.005)])
def test_the_rate_cools_down_over_the_last_quarter_of_the_updates(update, wanted):
    algorithm = ppo("eager", {**ADAM, "schedule": "cooldown"}, 16 * T * B)
    rate = float(algorithm.update(collected(algorithm, 0), update).metrics["learning_rate"])
    assert rate == pytest.approx(wanted)


def test_the_rate_falls_after_updates_that_clip_too_much_and_rises_again_up_to_its_schedule():
    algorithm = ppo(optimizer={**ADAM, "schedule": "linear"}, total_env_steps=30 * T * B, target_clip_fraction=0.4)
    factors = [1.0]
    for number in range(20):
        metrics = algorithm.update(collected(algorithm, number), number).metrics
        assert float(metrics["learning_rate"]) == pytest.approx(0.02 * (1 - number / 30) * factors[-1])
        factors.append(min(factors[-1] * (0.95 if float(metrics["clip_fraction"]) > 0.4 else 1 / 0.95), 1.0))
    assert {-1, 0, 1} == set(np.sign(np.diff(factors))), "it falls, rises, and stays at its schedule"


def test_a_step_that_is_not_finite_is_not_applied_and_ends_the_update():
    algorithm = ppo("eager")
    rollout = collected(algorithm, 0)
    rollout.rewards[2, 1] = np.inf
    seen, step = [], algorithm.steps["minibatch"]

    def watched(batch):
        seen.append(weights_of(algorithm.policy.model))
        return step(batch)

    update = algorithm.update(rollout, 0, {"minibatch": watched})
    assert update.failed is not None
    assert update.failed[0] == "minibatch"
    assert update.gradient_steps == len(seen) - 1
    for path, weight in weights_of(algorithm.policy.model).items():
        np.testing.assert_array_equal(weight, seen[-1][path])


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "loss", "gradient"),
    [
        (2.0, 0.0, -2.0, -2.0),
        (2.0, np.log(1.3), -2 * 1.2, 0.0),  # a good action is likely enough already
        (2.0, np.log(0.7), -2 * 0.7, -2 * 0.7),
        (-2.0, np.log(0.7), 2 * 0.8, 0.0),  # a bad one unlikely enough
        (-2.0, np.log(1.3), 2 * 1.3, 2 * 1.3),
    ],
)
def test_the_surrogate_is_clipped_on_the_side_that_would_go_further(advantage, log_ratio, loss, gradient):
    old = tf.constant([[-1.0]])
    log_probs = tf.Variable([[-1.0 + np.float32(log_ratio)]])
    with tf.GradientTape() as tape:
        found, outside = clipped_surrogate_loss(log_probs, old, tf.constant([[np.float32(advantage)]]), 0.2)
    assert float(found) == pytest.approx(loss, rel=1e-5)
    assert float(tape.gradient(found, log_probs)[0, 0]) == pytest.approx(gradient, rel=1e-5)
    assert float(outside) == float(log_ratio != 0)


def test_the_estimate_of_kl_is_that_of_the_distributions():
    """Over many draws, within 2 %; and 0 for the same policy."""
    rng = np.random.default_rng(0)
    p, q = np.float32([0.5, 0.3, 0.2]), np.float32([0.3, 0.3, 0.4])
    drawn = rng.choice(3, size=(400, 500), p=p / p.sum())
    assert float(approximate_kl(np.log(q)[drawn], np.log(p)[drawn])) == pytest.approx(
        (p * np.log(p / q)).sum(), rel=0.02
    )
    assert float(approximate_kl(np.log(p)[drawn], np.log(p)[drawn])) == 0


def test_shapes_that_would_broadcast_are_errors():
    good, bad = tf.zeros((3, 2)), tf.zeros((3, 1))
    for call in (
        lambda: clipped_surrogate_loss(good, good, bad, 0.1),
        lambda: approximate_kl(good, bad),
        lambda: clipped_value_loss(good, bad, good, 0.1),
    ):
        with pytest.raises(ValueError, match=r"\(3, 1\)"):
            call()


def test_a_rollout_that_cannot_be_cut_evenly_is_an_error():
    with pytest.raises(UserError, match=r"algorithm\.rollout_length=8 cannot be cut into algorithm\.num_minibatches=3"):
        ppo(num_minibatches=3)
