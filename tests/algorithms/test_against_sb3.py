"""Whole updates: A2C and PPO against Stable-Baselines3's `collect_rollouts` and `train`, DQN against its `train`.

`pip install stable-baselines3 && pip uninstall -y triton` (its LLVM beside TensorFlow's crashes the process), then
`pytest -m slow -n 0 tests/algorithms/test_against_sb3.py`.
"""

from itertools import pairwise

import numpy as np
import pytest
from conftest import VECTORS, A, make_rollout, run_config
from gymnasium.spaces import Discrete
from updates import recorded, set_weights, weights_of

from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.on_policy import minibatches

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("exact_numerics")]
sb3 = pytest.importorskip("stable_baselines3")
th = pytest.importorskip("torch")
rmsprop = pytest.importorskip("stable_baselines3.common.sb2_compat.rmsprop_tf_like").RMSpropTFLike

T, B, UPDATES = 8, 4, 5
MODEL = {"name": "mlp", "hidden_sizes": (8, 6)}
RMSPROP = {"name": "rmsprop", "learning_rate": 0.1, "rho": 0.99, "epsilon": 1e-5, "max_grad_norm": 0.3}
SHARED = {"gamma": 0.9, "gae_lambda": 0.95, "value_loss_coef": 0.4, "entropy_coef": 0.05}


class Scripted(sb3.common.vec_env.VecEnv):
    """Plays recorded rollouts, in which a lost life ends the episode."""

    def __init__(self, rollouts):
        super().__init__(B, VECTORS, Discrete(A))
        self.rows = [(rollout, t) for rollout in rollouts for t in range(T)]
        self.first = rollouts[0].observations[0]

    def reset(self):
        return self.first

    def actions(self):
        rollout, t = self.rows[0]
        return rollout.actions[t]

    def step_async(self, actions):
        np.testing.assert_array_equal(actions, self.actions())

    def step_wait(self):
        rollout, t = self.rows.pop(0)
        over = rollout.terminated[t] | rollout.life_lost[t]
        ends = map(tuple, np.argwhere(rollout.truncated))
        last = dict(zip(ends, rollout.last_observations, strict=True))
        infos = [
            {
                "terminal_observation": last.get((t, b), rollout.observations[t + 1, b]),
                "TimeLimit.truncated": bool(rollout.truncated[t, b] and not over[b]),
            }
            for b in range(B)
        ]
        rewards = rollout.rewards[t].copy()  # the values at time limits will be added to them
        return rollout.observations[t + 1], rewards, over | rollout.truncated[t], infos

    def close(self): ...

    def get_attr(self, name, indices=None):
        return [None] * B

    def set_attr(self, name, value, indices=None): ...

    def env_method(self, name, *arguments, indices=None, **options):
        return [None] * B

    def env_is_wrapped(self, wrapper, indices=None):
        return [False] * B


class Trunk(sb3.common.torch_layers.BaseFeaturesExtractor):
    """The layers that policy and values share."""

    def __init__(self, space):
        super().__init__(space, 6)
        tanh = th.nn.Tanh
        self.layers = th.nn.Sequential(th.nn.Linear(*VECTORS.shape, 8), tanh(), th.nn.Linear(8, 6), tanh())

    def forward(self, observations):
        return self.layers(observations)


def copy_to(layers, weights):
    """Our weights, by path, into torch's layers, by name."""
    for name, layer in layers.items():
        layer.weight.data = th.tensor(weights[f"{name}/kernel"].T.copy())
        layer.bias.data = th.tensor(weights[f"{name}/bias"])


def assert_same(layers, weights, start):
    """Within 2e-5, and each kernel has moved a hundred times as far."""
    for name, layer in layers.items():
        for kind, theirs in (("kernel", layer.weight.detach().numpy().T), ("bias", layer.bias.detach().numpy())):
            path = f"{name}/{kind}"
            np.testing.assert_allclose(weights[path], theirs, rtol=1e-4, atol=2e-5, err_msg=path)
            assert kind == "bias" or np.abs(weights[path] - start[path]).max() > 2e-3, path


def rollouts():
    """Consecutive ones: the last observations of one are the first of the next."""
    found = [make_rollout(seed, t=T, b=B) for seed in range(UPDATES)]
    for before, after in pairwise(found):
        after.observations[0] = before.observations[-1]
    return found


def ours(**algorithm):
    settings = {"rollout_length": T, **algorithm}
    config = run_config(MODEL, RMSPROP, "graph", num_envs=B, env={"reward_clipping": "none"}, **settings)
    built = build_algorithm(config.model_copy(update={"total_env_steps": UPDATES * T * B}), VECTORS, A)
    set_weights(built.policy.model)
    return built


def theirs(kind, environment, **options):
    """Stable-Baselines3's algorithm, whose actions are those of the script."""
    options = {"gamma": 0.9, "learning_rate": 0.1, "max_grad_norm": 0.3, "device": "cpu", **options}
    policy = {"optimizer_class": rmsprop, "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5}}
    return kind("MlpPolicy", environment, policy_kwargs={**policy, **options.pop("policy")}, **options)


@pytest.mark.parametrize("name", ["a2c", "ppo"])
def test_on_policy_updates_are_those_of_stable_baselines3(name, monkeypatch):
    """PPO with its order of minibatches replaced by ours."""
    settings = {
        "a2c": {},
        "ppo": {"num_epochs": 3, "num_minibatches": 2, "clip_range": 0.2, "normalize_advantages": False},
    }[name]
    algorithm, played = ours(name=name, **SHARED, **settings), rollouts()
    environment = Scripted(played)
    options = {"a2c": {}, "ppo": {"n_epochs": 3, "batch_size": T * B // 2, "clip_range": 0.2}}[name]
    options |= {"n_steps": T, "gae_lambda": 0.95, "vf_coef": 0.4, "ent_coef": 0.05, "normalize_advantage": False}
    network = {"net_arch": [], "features_extractor_class": Trunk}
    model = theirs({"a2c": sb3.A2C, "ppo": sb3.PPO}[name], environment, policy=network, **options)
    trunk = model.policy.features_extractor.layers
    heads = {"policy": model.policy.action_net, "value": model.policy.value_net}
    layers = {"dense_1": trunk[0], "dense_2": trunk[2], **heads}
    start = weights_of(algorithm.policy.model)
    copy_to(layers, start)

    def act(observations, deterministic=False):
        actions = th.tensor(environment.actions())
        values, log_probs, _ = model.policy.evaluate_actions(observations, actions)
        return actions, values, log_probs

    monkeypatch.setattr(model.policy, "forward", act)
    _, callback = model._setup_learn(UPDATES * T * B)
    for number, rollout in enumerate(played):
        if name == "ppo":
            rows = minibatches((T, B), 2, epochs=3, seed=algorithm.shuffle_seed, updates=number)
            epochs = list(np.stack([found + T * np.arange(B) for found in rows]).reshape(3, -1))
            monkeypatch.setattr(np.random, "permutation", lambda size, epochs=epochs: epochs.pop(0))
            logits, values = algorithm.policy.model(rollout.observations[:-1].reshape(T * B, -1))
            said = {"logits": logits.numpy().reshape(T, B, A), "values": values.numpy().reshape(T, B)}
            rollout = rollout._replace(said=said)
        model.collect_rollouts(environment, callback, model.rollout_buffer, n_rollout_steps=T)
        model.train()
        metrics = algorithm.update(rollout, number).metrics
        assert_same(layers, weights_of(algorithm.policy.model), start)
        logged = model.logger.name_to_value
        assert float(metrics["value_loss"]) == pytest.approx(logged["train/value_loss"], rel=1e-3)
        assert -float(metrics["entropy"]) == pytest.approx(logged["train/entropy_loss"], rel=1e-3)


def test_dqn_updates_are_those_of_stable_baselines3(monkeypatch):
    """On the transitions that ours has drawn; the copies to the target are made when ours are."""
    replay = {"replay_capacity": 200, "learning_starts": 0, "batch_size": 16, "gradient_steps": 3}
    algorithm = ours(name="dqn", gamma=0.9, target_update=4, **replay)
    set_weights(algorithm.target, seed=8)
    model = theirs(sb3.DQN, Scripted(rollouts()), policy={"net_arch": [8, 6], "activation_fn": th.nn.Tanh})
    layers = dict(zip(("dense_1", "dense_2", "policy"), model.q_net.q_net[::2], strict=True))
    start, drawn, made = weights_of(algorithm.policy.model), recorded(algorithm, monkeypatch), 0
    copy_to(layers, start)
    model._setup_learn(UPDATES * T * B)
    for number, rollout in enumerate(rollouts()):
        drawn.clear()
        update = algorithm.update(rollout, number)
        assert update.gradient_steps == len(drawn)
        for found in drawn:
            if made % 4 == 0:
                model.q_net_target.load_state_dict(model.q_net.state_dict())
            over = found.terminated[0] | found.life_lost[0]
            columns = (found.actions.astype(np.int64), over.astype(np.float32), found.rewards[0])
            actions, dones, rewards = (th.tensor(np.reshape(x, (-1, 1))) for x in columns)
            seen, after = th.tensor(found.observations), th.tensor(found.next_observations)
            samples = sb3.common.type_aliases.ReplayBufferSamples(seen, actions, after, dones, rewards)
            monkeypatch.setattr(model.replay_buffer, "sample", lambda *_, samples=samples, **__: samples)
            model.train(gradient_steps=1, batch_size=16)
            made += 1
    assert made == 3 * UPDATES
    assert_same(layers, weights_of(algorithm.policy.model), start)
