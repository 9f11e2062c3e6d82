"""A2C, PPO, DQN and SAC in NumPy, float64, every derivative by hand: the oracles of whole updates."""

import dataclasses
from typing import Any

import numpy as np

from a2c.config import OptimizerConfig


class NumpyNetwork:
    """tanh MLP of two layers with two heads, global-norm clipping, RMSProp of TF1 or Adam."""

    def __init__(self, weights: dict[str, np.ndarray], optimizer: OptimizerConfig, max_grad_norm: float) -> None:
        self.weights = {path: w.astype(np.float64) for path, w in weights.items()}
        self.optimizer, self.max_grad_norm = optimizer, max_grad_norm
        ones = optimizer.name == "rmsprop"
        self.second = {path: np.full(w.shape, float(ones)) for path, w in self.weights.items()}
        self.first = {path: np.zeros(w.shape) for path, w in self.weights.items()}
        self.steps = 0
        self.layers = sorted({path.split("/")[0] for path in self.weights} - {"policy", "value"})  # dense_1, dense_2

    def forward(self, x):
        """Observations [n, d] -> activations of every layer, logits [n, A], values [n]."""
        activations = [x]
        for layer in self.layers:
            x = np.tanh(x @ self.weights[f"{layer}/kernel"] + self.weights[f"{layer}/bias"])
            activations.append(x)
        logits = x @ self.weights["policy/kernel"] + self.weights["policy/bias"]
        values = x @ self.weights["value/kernel"] + self.weights["value/bias"]
        return activations, logits, values[:, 0]

    def backward(self, activations, d_logits, d_values):
        """The gradients of all weights, from those of logits [n, A] and values [n, 1]."""
        x = activations[-1]
        gradients = {
            "policy/kernel": x.T @ d_logits,
            "policy/bias": d_logits.sum(axis=0),
            "value/kernel": x.T @ d_values,
            "value/bias": d_values.sum(axis=0),
        }
        d_x = d_logits @ self.weights["policy/kernel"].T + d_values @ self.weights["value/kernel"].T
        for layer, output, below in zip(self.layers[::-1], activations[:0:-1], activations[-2::-1], strict=True):
            d_x = d_x * (1 - output**2)
            gradients[f"{layer}/kernel"] = below.T @ d_x
            gradients[f"{layer}/bias"] = d_x.sum(axis=0)
            d_x = d_x @ self.weights[f"{layer}/kernel"].T
        return gradients

    def descend(self, gradients):
        """One step of the optimizer; returns the norm before clipping."""
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        scale = min(1.0, self.max_grad_norm / norm)
        config = self.optimizer
        self.steps += 1
        for path, gradient in gradients.items():
            g = scale * gradient
            if config.name == "rmsprop":
                self.second[path] = config.rho * self.second[path] + (1 - config.rho) * g**2
                self.weights[path] -= config.learning_rate * g / np.sqrt(self.second[path] + config.epsilon)
            else:
                self.first[path] = config.beta_1 * self.first[path] + (1 - config.beta_1) * g
                self.second[path] = config.beta_2 * self.second[path] + (1 - config.beta_2) * g**2
                correction = np.sqrt(1 - config.beta_2**self.steps) / (1 - config.beta_1**self.steps)
                step = correction * self.first[path] / (np.sqrt(self.second[path]) + config.epsilon)
                self.weights[path] -= config.learning_rate * step
        return norm


def gae(trajectory, values, bootstrap_values, gae_lambda):
    """GAE as a double sum: A_t = sum_k (product of gamma lambda over rows t..k-1) delta_k, up to the first end."""
    t_max, num_envs = values.shape
    out = np.zeros((t_max, num_envs))
    for b in range(num_envs):
        for t in range(t_max):
            weight = 1.0
            for k in range(t, t_max):
                if trajectory.ends[k, b]:
                    following = float(trajectory.final_values[k, b])
                else:
                    following = values[k + 1, b] if k + 1 < t_max else bootstrap_values[b]
                discount = float(trajectory.discounts[k, b])
                out[t, b] += weight * (float(trajectory.rewards[k, b]) + discount * following - values[k, b])
                if trajectory.ends[k, b]:
                    break
                weight *= discount * gae_lambda
    return out


def softmax(logits):
    """pi and log pi [n, A]."""
    logits = logits - logits.max(axis=1, keepdims=True)
    pi = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return pi, np.log(pi)


@dataclasses.dataclass
class NumpyA2C:
    """GAE and the A2C loss on a network."""

    network: NumpyNetwork
    algorithm: Any

    def gradients(self, trajectory):
        """The losses and the gradients before clipping."""
        t, b = trajectory.rewards.shape
        n = t * b
        stored = trajectory.observations.reshape(n, -1).astype(np.float64)
        activations, logits, values = self.network.forward(stored)
        bootstrap = self.network.forward(trajectory.bootstrap_observations[0].astype(np.float64))[2]
        advantages = gae(trajectory, values.reshape(t, b), bootstrap, self.algorithm.gae_lambda).reshape(n)
        returns = advantages + values
        if self.algorithm.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        pi, log_pi = softmax(logits)
        actions = trajectory.actions.reshape(n)
        entropies = -(pi * log_pi).sum(axis=1)
        losses = {
            "policy_loss": -np.mean(log_pi[np.arange(n), actions] * advantages),
            "value_loss": np.mean((returns - values) ** 2),
            "entropy": entropies.mean(),
            "explained_variance": 1 - np.var(returns - values) / np.var(returns),
        }
        c_v, c_e = self.algorithm.value_loss_coef, self.algorithm.entropy_coef
        losses["total_loss"] = losses["policy_loss"] + c_v * losses["value_loss"] - c_e * losses["entropy"]
        d_logits = (pi - np.eye(pi.shape[1])[actions]) * advantages[:, None] / n
        d_logits += c_e * pi * (log_pi + entropies[:, None]) / n
        d_values = (-2 * c_v * (returns - values) / n)[:, None]
        gradients = self.network.backward(activations, d_logits, d_values)
        losses["grad_norm"] = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        return losses, gradients

    def update(self, trajectory):
        """One whole update; returns what is reported of it."""
        losses, gradients = self.gradients(trajectory)
        self.network.descend(gradients)
        return {**losses, "learning_rate": self.network.optimizer.learning_rate}


@dataclasses.dataclass
class NumpyPPO:
    """The clipped surrogate on a network: gradient steps on minibatches, which are made of `Outcomes` by hand."""

    network: NumpyNetwork
    algorithm: Any

    def whole(self, rollout, outcomes):
        """The rows of a rollout: observations, actions, log-probabilities, values, advantages, returns, each [T, B]."""
        t, b = rollout.actions.shape
        values = rollout.said["values"].astype(np.float64)
        bootstrap = self.network.forward(rollout.observations[-1].reshape(b, -1).astype(np.float64))[2]
        advantages = gae(outcomes, values, bootstrap, self.algorithm.gae_lambda)
        _, log_pi = softmax(rollout.said["logits"].reshape(t * b, -1).astype(np.float64))
        log_probs = log_pi[np.arange(t * b), rollout.actions.reshape(-1)].reshape(t, b)
        stored = rollout.observations[:-1].astype(np.float64)
        return stored, rollout.actions, log_probs, values, advantages, advantages + values

    def gradients(self, observations, actions, old_log_probs, old_values, advantages, returns):
        """Losses and gradients of one minibatch, [n] each."""
        n, config = len(actions), self.algorithm
        activations, logits, values = self.network.forward(observations.reshape(n, -1))
        pi, log_pi = softmax(logits)
        if config.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_ratios = log_pi[np.arange(n), actions] - old_log_probs
        ratios, e = np.exp(log_ratios), config.clip_range
        plain, clipped = ratios * advantages, np.clip(ratios, 1 - e, 1 + e) * advantages
        near = old_values + np.clip(values - old_values, -(config.value_clip_range or 0), config.value_clip_range or 0)
        errors, near_errors = (returns - values) ** 2, (returns - near) ** 2
        is_near = (config.value_clip_range is not None) & (near_errors > errors)
        entropies = -(pi * log_pi).sum(axis=1)
        losses = {
            "policy_loss": -np.minimum(plain, clipped).mean(),
            "value_loss": np.where(is_near, near_errors, errors).mean(),
            "entropy": entropies.mean(),
            "approx_kl": (ratios - 1 - log_ratios).mean(),
            "clip_fraction": (np.abs(ratios - 1) > e).mean(),
            "explained_variance": 1 - np.var(returns - values) / np.var(returns),
        }
        c_v, c_e = config.value_loss_coef, config.entropy_coef
        losses["total_loss"] = losses["policy_loss"] + c_v * losses["value_loss"] - c_e * losses["entropy"]
        d_log_probs = np.where(plain <= clipped, -plain, 0.0) / n
        d_logits = d_log_probs[:, None] * (np.eye(pi.shape[1])[actions] - pi)
        d_logits += c_e * pi * (log_pi + entropies[:, None]) / n
        moves = ~is_near | (np.abs(values - old_values) <= (config.value_clip_range or 0))  # else near is a constant
        d_values = np.where(moves, -2 * c_v * (returns - np.where(is_near, near, values)) / n, 0.0)
        gradients = self.network.backward(activations, d_logits, d_values[:, None])
        losses["grad_norm"] = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        return losses, gradients

    def update(self, rollout, outcomes, orders):
        """One whole update; the rows [n, B] of each minibatch are given. Returns the means of what is reported."""
        whole, each = self.whole(rollout, outcomes), []
        for rows in orders:
            columns = np.arange(rows.shape[1])
            batch = [field[rows, columns].reshape(rows.size, *field.shape[2:]) for field in whole]
            losses, gradients = self.gradients(*batch)
            self.network.descend(gradients)
            each.append({**losses, "learning_rate": self.network.optimizer.learning_rate})
        return {name: np.mean([losses[name] for losses in each]) for name in each[0]}


def sampled_returns(samples, values, algorithm, cut_on_life_loss):
    """Rewards as long as the episode lasts, then the value of where it went on or was cut."""
    targets = np.zeros(len(values))
    for i in range(len(values)):
        weight = 1.0
        for k in range(algorithm.n_step):
            targets[i] += weight * samples.rewards[k, i]
            weight *= algorithm.gamma
            if samples.terminated[k, i] or (cut_on_life_loss and samples.life_lost[k, i]):
                weight = 0.0
            if weight == 0.0 or samples.truncated[k, i]:
                break
        targets[i] += weight * values[i]
    return targets


@dataclasses.dataclass
class NumpyDQN:
    """The Huber loss of the TD errors of Q on a network, from transitions as they happened."""

    network: NumpyNetwork
    target: NumpyNetwork  # its weights are replaced by copies of the network's
    algorithm: Any
    cut_on_life_loss: bool
    steps: int = 0

    def q_values(self, network, x):
        """Activations and Q [N, A]."""
        activations, first, values = network.forward(x)
        if self.algorithm.duelling:
            first = first - first.mean(axis=1, keepdims=True) + values[:, None]
        return activations, first

    def targets(self, samples):
        """The n-step returns with the target network's values, of its own or the network's choice."""
        following = samples.next_observations.astype(np.float64)
        valued = self.q_values(self.target, following)[1]
        choosing = self.q_values(self.network, following)[1] if self.algorithm.double else valued
        values = valued[np.arange(len(valued)), choosing.argmax(axis=1)]
        return sampled_returns(samples, values, self.algorithm, self.cut_on_life_loss)

    def update(self, samples, beta):
        """One gradient step; returns what is reported of it, and the sizes of the errors."""
        if self.steps % self.algorithm.target_update == 0:
            self.target.weights = {path: w.copy() for path, w in self.network.weights.items()}
        n, each = len(samples.actions), np.arange(len(samples.actions))
        activations, q_values = self.q_values(self.network, samples.observations.astype(np.float64))
        errors = self.targets(samples) - q_values[each, samples.actions]
        weights = samples.probabilities**-beta
        weights /= weights.max()
        sizes = np.abs(errors)
        losses = {
            "total_loss": np.mean(weights * np.where(sizes <= 1, errors**2 / 2, sizes - 0.5)),
            "q_value": q_values[each, samples.actions].mean(),
            "td_error": sizes.mean(),
            "learning_rate": self.network.optimizer.learning_rate,
        }
        d_q = np.zeros_like(q_values)
        d_q[each, samples.actions] = -weights * np.clip(errors, -1, 1) / n
        d_values = np.zeros((n, 1))
        if self.algorithm.duelling:
            d_values = d_q.sum(axis=1, keepdims=True)
            d_q = d_q - d_q.mean(axis=1, keepdims=True)
        losses["grad_norm"] = self.network.descend(self.network.backward(activations, d_q, d_values))
        self.steps += 1
        return losses, sizes


@dataclasses.dataclass
class NumpySAC:
    """Discrete SAC on five networks and a temperature, from transitions as they happened; nothing is clipped."""

    policy: NumpyNetwork
    critics: list[NumpyNetwork]
    targets: list[NumpyNetwork]
    temperature: NumpyNetwork  # one weight, the logarithm
    algorithm: Any
    cut_on_life_loss: bool
    target_entropy: float

    def soft(self, logits, q_values, alpha):
        """The soft values [N], and what each action gains [N, A]."""
        pi, log_pi = softmax(logits)
        gains = q_values - alpha * log_pi
        return (pi * gains).sum(axis=1), pi, gains

    def smaller(self, networks, x):
        return np.minimum(*(network.forward(x)[1] for network in networks))

    def update(self, samples):
        """One gradient step of each; returns what is reported of it."""
        n, each = len(samples.actions), np.arange(len(samples.actions))
        x, following = samples.observations.astype(np.float64), samples.next_observations.astype(np.float64)
        alpha = float(np.exp(self.temperature.weights["log"]))
        soft, _, _ = self.soft(self.policy.forward(following)[1], self.smaller(self.targets, following), alpha)
        targets = sampled_returns(samples, soft, self.algorithm, self.cut_on_life_loss)
        losses, squares = {"critic_loss": 0.0}, 0.0
        for critic in self.critics[::-1]:
            activations, q_values, _ = critic.forward(x)
            errors = targets - q_values[each, samples.actions]
            d_q = np.zeros_like(q_values)
            d_q[each, samples.actions] = -2 * errors / n
            losses["critic_loss"] += np.mean(errors**2)
            losses["q_value"] = q_values[each, samples.actions].mean()
            squares += critic.descend(critic.backward(activations, d_q, np.zeros((n, 1)))) ** 2
        losses["grad_norm"] = np.sqrt(squares)
        activations, logits, values = self.policy.forward(x)
        soft, pi, gains = self.soft(logits, self.smaller(self.critics, x), alpha)
        c_v = self.algorithm.value_loss_coef
        losses |= {"policy_loss": -soft.mean(), "value_loss": np.mean((soft - values) ** 2)}
        losses["entropy"] = -(pi * np.log(pi)).sum(axis=1).mean()
        d_logits, d_values = -pi * (gains - soft[:, None]) / n, (-2 * c_v * (soft - values) / n)[:, None]
        losses["policy_grad_norm"] = self.policy.descend(self.policy.backward(activations, d_logits, d_values))
        self.temperature.descend({"log": np.array(alpha * (losses["entropy"] - self.target_entropy))})
        for critic, target in zip(self.critics, self.targets, strict=True):
            for path, weight in critic.weights.items():
                if "value" not in path:
                    target.weights[path] += self.algorithm.polyak * (weight - target.weights[path])
        return losses
