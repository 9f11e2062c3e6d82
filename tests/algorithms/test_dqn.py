"""DQN against updates written by hand in NumPy, with each of its switches; its schedules; eager against graph."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import VECTORS, A, make_rollout, run_config
from numpy_reference import NumpyDQN, NumpyNetwork
from updates import recorded, set_weights, weights_of

from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.dqn import DQN
from a2c.algorithms.losses import duelling_q_values, huber_loss
from a2c.algorithms.off_policy import n_step_targets, total_gradient_steps, transitions
from a2c.algorithms.policy import QPolicy, draw_epsilon_greedily
from a2c.algorithms.sections import DQNSection
from a2c.analysis import numerics
from a2c.config import Config, UserError, load_config
from a2c.evaluation.evaluate import evaluate
from a2c.run.training import train

pytestmark = pytest.mark.usefixtures("exact_numerics")
T, B, N = 6, 4, 16
MODEL = {"name": "mlp", "hidden_sizes": (8, 6)}
ADAM = {"name": "adam", "learning_rate": 0.02, "epsilon": 1e-3, "max_grad_norm": 0.3}
QUICK = {"learning_starts": 2 * T * B, "gradient_steps": 3, "batch_size": N, "replay_capacity": 60, "target_update": 4}


def settings(mode: str = "graph", total_updates: int = 10, **algorithm: Any) -> Config:
    env = {"id": "Chain", "reward_clipping": "none"}
    config = run_config(
        MODEL, ADAM, mode, num_envs=B, env=env, name="dqn", **{"rollout_length": T, **QUICK, **algorithm}
    )
    return config.model_copy(update={"total_env_steps": total_updates * T * B})


def dqn(mode: str = "graph", **algorithm: Any) -> DQN:
    """With weights of a network that prefers something."""
    built = build_algorithm(settings(mode, **algorithm), VECTORS, A)
    assert isinstance(built, DQN)
    set_weights(built.policy.model, kernel=1.5, bias=0.3)
    return built


def test_the_target_has_the_form_of_a_policy_of_ones_own():
    class Wide(DQN):
        @staticmethod
        def build_policy(config: Config, *spaces: Any) -> QPolicy:
            wide = config.model.model_copy(update={"hidden_sizes": (20,)})
            return DQN.build_policy(config.model_copy(update={"model": wide}), *spaces)

    built = Wide(settings(), VECTORS, A)
    assert built.target.variables[0].shape[-1] == 20
    assert [v.shape for v in built.target.variables] == [v.shape for v in built.policy.model.variables]


SWITCHES = [
    ("eager", {}),
    ("eager", {"double": True}),
    ("eager", {"duelling": True}),
    ("eager", {"n_step": 3}),
    ("eager", {"prioritised": True, "target_update": 1}),
    ("graph", {"double": True, "duelling": True, "n_step": 3, "prioritised": True}),
    pytest.param("graph", {"double": True}, marks=pytest.mark.integration),
    pytest.param("graph", {"duelling": True}, marks=pytest.mark.integration),
    pytest.param("graph", {"prioritised": True, "target_update": 1}, marks=pytest.mark.integration),
]


@pytest.mark.parametrize(("mode", "switches"), SWITCHES, ids=str)
def test_whole_updates_are_those_of_the_numpy_reference(mode, switches, monkeypatch):
    """Metrics, weights, target and priorities after each of 4 updates of 3 steps; float32 against float64."""
    algorithm, optimizer = dqn(mode, **switches), run_config(MODEL, ADAM, mode).optimizer
    online, target = (
        NumpyNetwork(weights_of(model), optimizer, optimizer.max_grad_norm)
        for model in (algorithm.policy.model, algorithm.target)
    )
    reference = NumpyDQN(online, target, algorithm.config, cut_on_life_loss=True)
    assert algorithm.update(make_rollout(9, t=T, b=B), 0).gradient_steps == 0
    start, drawn = weights_of(algorithm.policy.model), recorded(algorithm, monkeypatch)
    for number in range(1, 5):
        drawn.clear()
        found = algorithm.update(make_rollout(number, t=T, b=B), number)
        beta = 0.4 + 0.6 * number / 10
        wanted, sizes = zip(*(reference.update(samples, beta) for samples in drawn), strict=True)
        assert found.gradient_steps == len(wanted) == 3
        assert 0.1 < np.mean([size > 1 for size in sizes]) < 0.9  # both sides of Huber's
        for name in wanted[0]:
            mean = np.mean([losses[name] for losses in wanted])
            assert float(found.metrics[name]) == pytest.approx(mean, rel=1e-3, abs=5e-5), (number, name)
        for model, of in ((algorithm.policy.model, online), (algorithm.target, target)):
            for path, weight in weights_of(model).items():
                np.testing.assert_allclose(weight, of.weights[path], rtol=1e-3, atol=1e-4, err_msg=path)
        if algorithm.config.prioritised:
            assert len(np.unique(drawn[-1].probabilities)) > 5
            places, last = np.unique(drawn[-1].places[::-1], return_index=True)
            tree = algorithm.memory._tree
            np.testing.assert_allclose(
                tree.weights[places], (sizes[-1][::-1][last] + 1e-6) ** 0.6, rtol=2e-3, atol=1e-4
            )
    moved = {path: np.abs(weight - start[path]).max() for path, weight in weights_of(algorithm.policy.model).items()}
    assert all((change > 1e-3) == (algorithm.config.duelling or "value" not in path) for path, change in moved.items())


def test_targets_of_several_values_are_those_of_each():
    """Atoms or quantiles: a column for each."""
    algorithm = dqn(n_step=3, learning_starts=0)
    algorithm.memory.add(make_rollout(0, t=T, b=B))
    batch = transitions(algorithm.memory.sample(N, np.random.default_rng(0)), algorithm.objective)
    values = np.random.default_rng(1).normal(size=(N, 5)).astype(np.float32)
    found = n_step_targets(batch, tf.constant(values)).numpy()
    assert found.shape == (1, N, 5)
    for k in range(5):
        np.testing.assert_array_equal(found[:, :, k], n_step_targets(batch, tf.constant(values[:, k])))


def test_a_network_may_have_other_outputs_than_actions(tmp_path, monkeypatch):
    """As in C51: the section says how many, so that the agent can be read again."""

    class Halves(QPolicy):
        def q_values(self, model: Any, observations: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(tf.reshape(model(observations)[0], (-1, model.output_shape[0][-1] // 2, 2)), axis=-1)

    def build_policy(config: Config, space: Any, num_actions: int, *_: Any) -> QPolicy:
        return Halves(config, space, 2 * num_actions)

    monkeypatch.setattr(DQN, "build_policy", staticmethod(build_policy))
    monkeypatch.setattr(DQNSection, "outputs", lambda self, num_actions: 2 * num_actions)
    chain = {"id": "Chain", "num_envs": B}
    short = settings(total_updates=4).model_copy(update={"env": settings().env.model_copy(update=chain)})
    train(short, tmp_path / "run")
    evaluate(tmp_path / "run", episodes=2)
    with pytest.raises(UserError, match="does not fit"):
        monkeypatch.setattr(DQNSection, "outputs", lambda self, num_actions: 3 * num_actions)
        evaluate(tmp_path / "run", episodes=2)


def test_eager_and_graph_make_the_same_updates_bit_for_bit():
    found = []
    for mode in ("eager", "graph"):
        algorithm = dqn(mode, double=True, duelling=True, n_step=3, prioritised=True)
        metrics = [algorithm.update(make_rollout(number, t=T, b=B), number).metrics for number in range(5)]
        variables = [v.numpy().tobytes() for group in algorithm.variables.values() for v in group]
        state = {name: array.tobytes() for name, array in algorithm.memory.state().items()}
        found.append((variables, state, [{name: float(x) for name, x in each.items()} for each in metrics]))
    assert found[0] == found[1]


def test_epsilon_falls_in_a_straight_line_and_is_saved():
    algorithm = dqn("eager", exploration_fraction=0.4, final_epsilon=0.2)  # of 10 updates
    seen = [float(algorithm.policy.epsilon.numpy())]
    seen += [float(algorithm.update(make_rollout(n, t=T, b=B), n).metrics["epsilon"]) for n in range(5)]
    np.testing.assert_allclose(seen, [1, 0.8, 0.6, 0.4, 0.2, 0.2], rtol=1e-6)
    assert algorithm.variables["exploration"] == [algorithm.policy.epsilon]
    assert float(dqn(exploration_fraction=0.0, final_epsilon=0.2).policy.epsilon.numpy()) == pytest.approx(0.2)


def test_actions_are_the_best_ones_but_for_a_share_of_even_draws():
    q_values = tf.constant(np.tile([[0.1, 3.0, 0.2, -1.0]], (20_000, 1)), tf.float32)
    seed = np.array([1, 2], np.int64)
    actions = draw_epsilon_greedily(q_values, 0.4, seed).numpy()
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / 20_000, [0.1, 0.7, 0.1, 0.1], atol=0.01)
    assert (draw_epsilon_greedily(q_values, 0.0, seed).numpy() == 1).all()
    assert len(set(draw_epsilon_greedily(-1e9 + q_values, 1.0, seed).numpy().tolist())) == 4


def test_the_agent_explores_in_training_and_hardly_when_it_plays():
    policy = dqn(final_epsilon=0.0).policy
    observations = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    seed = np.array([3, 4], np.int64)
    best = policy.act_greedily(observations)
    np.testing.assert_array_equal(policy.act(observations, seed), best)
    assert (policy.explore(observations, seed)[0] != best).mean() > 0.5
    q_values, values = policy.look(observations)
    np.testing.assert_array_equal(q_values.argmax(axis=1), best)
    np.testing.assert_array_equal(q_values.max(axis=1), values)
    served = policy.serve(tf.constant(observations))
    np.testing.assert_allclose(served["q_values"], q_values, rtol=1e-5, atol=1e-6)
    assert policy.acts == "epsilon-greedy (0)"


def test_pure_losses():
    errors, weights = tf.constant([[-3.0, 0.5, 1.0]]), tf.constant([[1.0, 2.0, 0.5]])
    with tf.GradientTape() as tape:
        tape.watch([errors, weights])
        loss = huber_loss(errors, weights)
    assert float(loss) == pytest.approx((2.5 + 2 * 0.125 + 0.5 * 0.5) / 3)
    gradient, none = tape.gradient(loss, [errors, weights])
    np.testing.assert_allclose(gradient, [[-1 / 3, 1 / 3, 0.5 / 3]])
    assert none is None
    q_values = duelling_q_values(tf.constant([[1.0, 2.0, 6.0]]), tf.constant([10.0]))
    np.testing.assert_allclose(q_values, [[8.0, 9.0, 13.0]])
    with pytest.raises(ValueError, match=r"duelling_q_values: .*rank 1"):
        duelling_q_values(tf.zeros((2, 3)), tf.zeros((2, 1)))


def test_a_replay_that_cannot_be_says_so():
    with pytest.raises(UserError, match=r"algorithm\.replay_capacity=10 is less than one rollout of 24 steps"):
        dqn(replay_capacity=10)
    with pytest.raises(UserError, match=r"algorithm\.replay_capacity=\d+ transitions of 44 bytes take .* GB"):
        dqn(replay_capacity=10**12)


def test_a_comparison_of_modes_looks_at_the_same_draws_again():
    """`compare --eager` repeats an update from the state before it: the replay too goes back."""
    algorithms = [dqn(mode, prioritised=True, learning_starts=0) for mode in ("eager", "graph")]
    rollouts = [make_rollout(number, t=T, b=B) for number in range(3)]
    found = numerics.find_where(*algorithms, rollouts)
    assert (found.update, found.first, found.changed_by_observing) == (None, None, ())
    tampered = numerics.find_where(*algorithms, rollouts, lambda stage, x: x + 1.0 if stage == "targets" else x)
    assert tampered.first == "targets"


@pytest.mark.parametrize(("learning_starts", "n_step"), [(0, 1), (1, 1), (48, 1), (49, 1), (72, 3), (0, 30)])
def test_the_rate_falls_to_its_last_step_and_not_before(learning_starts, n_step):
    """Counted as the run makes them: the last step has a rate above 0, of a schedule that ends at 0."""
    values = settings("eager", total_updates=5, learning_starts=learning_starts, n_step=n_step)
    config = values.model_copy(update={"optimizer": values.optimizer.model_copy(update={"schedule": "linear"})})
    algorithm = build_algorithm(config, VECTORS, A)
    updates = [algorithm.update(make_rollout(n, t=T, b=B), n) for n in range(config.total_updates)]
    rates = [float(update.metrics["learning_rate"]) for update in updates if update.gradient_steps]
    made = sum(update.gradient_steps for update in updates)
    assert made == total_gradient_steps(config, config.algorithm)
    np.testing.assert_allclose(rates[-1], 0.02 * 2 / made, rtol=1e-5)  # the mean of the last three: 3, 2 and 1 of all


@pytest.mark.parametrize("steps", [24, 72, 96])
def test_a_run_that_ends_before_it_learns_is_a_mistake(steps):
    config = settings(learning_starts=97).model_copy(update={"total_env_steps": steps})
    with pytest.raises(UserError, match=rf"total_env_steps={steps} is too short to learn anything: dqn collects"):
        build_algorithm(config, VECTORS, A)


def test_the_target_starts_as_the_network_that_the_run_was_given():
    """As `--init-from` gives it: after the algorithm was built, and before its first gradient step."""
    algorithm = dqn("eager", learning_starts=0, target_update=1000)
    given = [v.numpy() for v in algorithm.policy.model.variables]
    algorithm.update(make_rollout(0, t=T, b=B), 0)
    for target, variable, then in zip(algorithm.target.variables, algorithm.policy.model.variables, given, strict=True):
        np.testing.assert_array_equal(target.numpy(), then)
        assert "policy" not in variable.path or (variable.numpy() != then).any()


@pytest.mark.slow
def test_cartpole_is_solved_with_its_preset(run_dir):
    """475 is what Gymnasium calls solved, here within 60,000 steps."""
    config, _ = load_config(env_id="CartPole-v1", overrides={"algorithm.name": "dqn"})
    assert config.total_env_steps == 60_000
    train(config, run_dir)
    assert evaluate(run_dir, episodes=50, greedy=True).mean >= 475
