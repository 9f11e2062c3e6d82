"""PPO as CleanRL has it for Atari (`ppo_atari_envpool.py`), with the network, environments and care of pytorch.py.

Four epochs of four minibatches, clip 0.1, GAE 0.95, advantages normalised per minibatch, values not clipped, loss
policy + 0.5 * 0.5 value - 0.01 entropy, Adam at 2.5e-4, sign rewards, lost lives cut the return.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, PyTorch's own name for it
from protocol import Settings, Train, serve
from pytorch import GAMMA, ActorCritic, channels_last, keep_memory, make_envs, training
from torch import Tensor, nn

LAMBDA, CLIP, VALUE_LOSS_COEF, ENTROPY_COEF, MAX_GRAD_NORM = 0.95, 0.1, 0.25, 0.01, 0.5
EPOCHS, MINIBATCHES = 4, 4
LEARNING_RATE, EPSILON = 2.5e-4, 1e-5


class Learner:
    """Acts, and learns from a rollout of N = T B steps, in minibatches of M of them.

    Args:
        num_actions: A.
        compiled: whether PyTorch compiles acting and the loss with its gradient.
        bfloat16: whether convolutions and products are in bfloat16.
    """

    def __init__(self, num_actions: int, *, compiled: bool, bfloat16: bool) -> None:
        self.network = ActorCritic(num_actions)
        self.parameters = list(self.network.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, LEARNING_RATE, eps=EPSILON, foreach=True)
        self.precision = torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext()
        if compiled:
            self._act, self._loss = (torch.compile(function, dynamic=False) for function in (self._act, self._loss))

    @torch.inference_mode()
    def act(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw actions [B] int64, with their log-probabilities and V [B] float32, of pixels [B, 84, 84, 4] uint8."""
        with self.precision:
            return self._act(pixels)

    def update(self, pixels: Tensor, *facts: Tensor) -> Tensor:
        """All epochs on pixels [N, 84, 84, 4] uint8 and actions, log-probabilities, advantages and returns [N]."""
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(pixels)).chunk(MINIBATCHES):
                with self.precision:
                    loss = self._loss(pixels[rows], *(fact[rows] for fact in facts))
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM, foreach=True)
                self.optimizer.step()
                self.optimizer.zero_grad()
        return loss.detach()

    def _act(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, values = self.network(pixels)
        log_probs = F.log_softmax(logits, 1)
        gumbel = -torch.log(-torch.log(torch.rand_like(logits)))
        actions = (logits + gumbel).argmax(1)
        return actions, log_probs.gather(1, actions[:, None]).squeeze(1), values

    def _loss(self, pixels: Tensor, actions: Tensor, acted: Tensor, advantages: Tensor, returns: Tensor) -> Tensor:
        logits, values = self.network(pixels)
        log_probs = F.log_softmax(logits, 1)
        ratios = (log_probs.gather(1, actions[:, None]).squeeze(1) - acted).exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -torch.min(advantages * ratios, advantages * ratios.clamp(1 - CLIP, 1 + CLIP)).mean()
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        return policy_loss + VALUE_LOSS_COEF * F.mse_loss(values, returns) - ENTROPY_COEF * entropy


class Rollouts:
    """Steps the environments into arrays that are there once for all: T steps in B environments."""

    def __init__(self, settings: Settings) -> None:
        self.envs = make_envs(settings)
        length, shape = settings.rollout_length, (settings.rollout_length, settings.num_envs)
        self.pixels = torch.empty((length + 1, settings.num_envs, 84, 84, 4), dtype=torch.uint8)
        self.actions = torch.empty(shape, dtype=torch.int64)
        self.log_probs = torch.empty(shape)
        self.values = torch.empty((length + 1, settings.num_envs))
        self.rewards = np.empty(shape, np.float32)
        self.discounts = np.empty(shape, np.float32)
        observations, info = self.envs.reset(seed=0)
        self.pixels[-1] = channels_last(observations)
        self.lives = info["lives"]

    def collect(self, learner: Learner) -> tuple[Tensor, ...]:
        """Act for T steps: what `Learner.update` wants."""
        self.pixels[0] = self.pixels[-1]
        for t in range(len(self.rewards)):
            self._step(t, learner)
        self.values[-1] = learner.act(self.pixels[-1])[2]
        advantages = self._advantages()
        facts = (self.pixels[:-1], self.actions, self.log_probs, advantages, advantages + self.values[:-1])
        return tuple(fact.flatten(0, 1) for fact in facts)

    def _step(self, t: int, learner: Learner) -> None:
        self.actions[t], self.log_probs[t], self.values[t] = learner.act(self.pixels[t])
        observations, rewards, terminated, truncated, info = self.envs.step(self.actions[t].numpy())
        self.pixels[t + 1] = channels_last(observations)
        self.rewards[t] = np.sign(rewards)
        self.discounts[t] = GAMMA * ~(terminated | truncated | (info["lives"] < self.lives))
        self.lives = info["lives"]
        if truncated.any():
            values = learner.act(channels_last(info["final_obs"]).contiguous())[2].numpy()
            self.rewards[t, truncated] += GAMMA * values[truncated]

    def _advantages(self) -> Tensor:
        """A_t = delta_t + lambda discount_t A_{t+1}: [T, B] float32."""
        values = self.values.numpy()
        deltas = self.rewards + self.discounts * values[1:] - values[:-1]
        following = np.zeros_like(deltas[0])
        for t in reversed(range(len(deltas))):
            following = deltas[t] = deltas[t] + LAMBDA * self.discounts[t] * following
        return torch.from_numpy(deltas)


def build(settings: Settings) -> Train:
    """The variant is the keyword arguments of `Learner`."""
    keep_memory()
    torch.set_num_threads(settings.threads)
    rollouts = Rollouts(settings)
    return training(rollouts, Learner(rollouts.envs.single_action_space.n, **settings.variant))


if __name__ == "__main__":
    serve(build, ["torch", "ale-py", "numpy"])
