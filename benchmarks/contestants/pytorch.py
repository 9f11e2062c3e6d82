"""A2C as one would tune it by hand in PyTorch on a CPU, on the same native vector environment as ours.

The same maths as the preset `atari`: Nature network, n-step returns, sign rewards, lost lives cut the return, loss
policy + 0.25 value - 0.01 entropy, gradients clipped at a global norm of 0.5, RMSProp as TF1 had it. Done for its
speed: channels-last convolutions, every observation transposed once and as bytes, x / 255 moved into the first kernel,
both heads in one product, no gradient through acting or the bootstrap value, one pass over the stored observations,
memory that is kept. (Keeping the graphs of the acting passes, to save that one pass, was slower.) Left out, to its
advantage: seeds of episodes, scores, anything to resume from.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from typing import Any

import ale_py
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, PyTorch's own name for it
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from protocol import Settings, Train, serve, updates_per_call
from torch import Tensor, nn

GAMMA, VALUE_LOSS_COEF, ENTROPY_COEF, MAX_GRAD_NORM = 0.99, 0.25, 0.01, 0.5
LEARNING_RATE, RHO, EPSILON = 7e-4, 0.99, 1e-5
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else the emulator prints a banner


class ActorCritic(nn.Module):
    """The Nature network: pixels [N, 84, 84, 4] uint8 -> (logits [N, A], values [N]), float32."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)])
        self.dense = nn.Linear(64 * 7 * 7, 512)
        self.heads = nn.Linear(512, num_actions + 1)
        for layer in (*self.convolutions, self.dense):
            nn.init.orthogonal_(layer.weight, 2**0.5)
            nn.init.zeros_(layer.bias)
        nn.init.orthogonal_(self.heads.weight[:-1], 0.01)
        nn.init.orthogonal_(self.heads.weight[-1:], 1.0)
        nn.init.zeros_(self.heads.bias)
        self.to(memory_format=torch.channels_last)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values."""
        x = pixels.permute(0, 3, 1, 2).float()  # keeps the order in memory, which is channels last
        first, *others = self.convolutions
        x = F.relu(F.conv2d(x, first.weight * (1 / 255), first.bias, first.stride))  # 8,192 products for 28,224 a row
        for layer in others:
            x = F.relu(layer(x))
        x = F.relu(self.dense(x.permute(0, 2, 3, 1).flatten(1)))  # the same order: nothing is copied
        outputs = self.heads(x).float()
        return outputs[:, :-1], outputs[:, -1]


class Learner:
    """Acts, and turns a rollout into one update. T = rollout_length, B = num_envs, A = num_actions.

    Args:
        num_actions: A.
        compiled: whether PyTorch compiles acting, the loss with its gradient, and the optimizer.
        bfloat16: whether convolutions and products are in bfloat16.
    """

    def __init__(self, num_actions: int, *, compiled: bool, bfloat16: bool) -> None:
        self.network = ActorCritic(num_actions)
        self.parameters = list(self.network.parameters())
        self.squares = [torch.ones_like(parameter) for parameter in self.parameters]
        self.precision = torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext()
        if compiled:
            self._act, self._loss, self._apply = (
                torch.compile(function, dynamic=False) for function in (self._act, self._loss, self._apply)
            )

    @torch.inference_mode()
    def act(self, pixels: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Draw actions [B] int64, and V [B] float32, of pixels [B, 84, 84, 4] uint8."""
        with self.precision:
            actions, values = self._act(pixels)
        return actions.numpy(), values.numpy()

    def update(self, pixels: Tensor, actions: Tensor, returns: Tensor) -> Tensor:
        """One gradient step on pixels [T B, 84, 84, 4] uint8, actions [T B] int64 and returns [T B] float32."""
        with self.precision:
            loss = self._loss(pixels, actions, returns)
        loss.backward()
        with torch.no_grad():
            self._apply([parameter.grad for parameter in self.parameters])
        self.network.zero_grad()
        return loss.detach()

    def _act(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        logits, values = self.network(pixels)
        gumbel = -torch.log(-torch.log(torch.rand_like(logits)))
        return (logits + gumbel).argmax(1), values

    def _loss(self, pixels: Tensor, actions: Tensor, returns: Tensor) -> Tensor:
        logits, values = self.network(pixels)
        log_probs = F.log_softmax(logits, 1)
        taken = log_probs.gather(1, actions[:, None]).squeeze(1)
        policy_loss = -(taken * (returns - values).detach()).mean()
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        return policy_loss + VALUE_LOSS_COEF * F.mse_loss(values, returns) - ENTROPY_COEF * entropy

    def _apply(self, gradients: list[Tensor]) -> None:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, (MAX_GRAD_NORM / norm).clamp(max=1.0))
        torch._foreach_mul_(self.squares, RHO)
        torch._foreach_addcmul_(self.squares, gradients, gradients, 1 - RHO)
        roots = torch._foreach_add(self.squares, EPSILON)
        torch._foreach_sqrt_(roots)
        torch._foreach_addcdiv_(self.parameters, gradients, roots, -LEARNING_RATE)


class Rollouts:
    """Steps the environments into arrays that are there once for all."""

    def __init__(self, envs: AtariVectorEnv, rollout_length: int) -> None:
        shape = (rollout_length, envs.num_envs)
        self.envs = envs
        self.pixels = torch.empty((rollout_length + 1, envs.num_envs, 84, 84, 4), dtype=torch.uint8)
        self.actions = torch.empty(shape, dtype=torch.int64)
        self.returns = torch.empty(shape)
        self.rewards = np.empty(shape, np.float32)
        self.discounts = np.empty(shape, np.float32)
        observations, info = envs.reset(seed=0)
        self.pixels[-1] = channels_last(observations)
        self.lives = info["lives"]

    def collect(self, learner: Learner) -> tuple[Tensor, Tensor, Tensor]:
        """Act for T steps: what `Learner.update` wants."""
        self.pixels[0] = self.pixels[-1]
        for t in range(len(self.rewards)):
            self._step(t, learner)
        self._discount(learner.act(self.pixels[-1])[1])
        return self.pixels[:-1].flatten(0, 1), self.actions.flatten(), self.returns.flatten()

    def _step(self, t: int, learner: Learner) -> None:
        actions, _ = learner.act(self.pixels[t])
        self.actions[t] = torch.from_numpy(actions)
        observations, rewards, terminated, truncated, info = self.envs.step(actions)
        self.pixels[t + 1] = channels_last(observations)
        self.rewards[t] = np.sign(rewards)
        self.discounts[t] = GAMMA * ~(terminated | truncated | (info["lives"] < self.lives))
        self.lives = info["lives"]
        if truncated.any():
            _, values = learner.act(channels_last(info["final_obs"]).contiguous())
            self.rewards[t, truncated] += GAMMA * values[truncated]

    def _discount(self, following: np.ndarray) -> None:
        """R_t = r_t + discount_t R_{t+1}, from V of the observation after the last row: [B] float32."""
        returns = self.returns.numpy()
        for t in reversed(range(len(returns))):
            following = returns[t] = self.rewards[t] + self.discounts[t] * following


def build(settings: Settings) -> Train:
    """The variant is the keyword arguments of `Learner`."""
    keep_memory()
    torch.set_num_threads(settings.threads)
    rollouts = Rollouts(make_envs(settings), settings.rollout_length)
    return training(rollouts, Learner(rollouts.envs.single_action_space.n, **settings.variant))


def training(rollouts: Any, learner: Any) -> Train:
    """What `build` returns: updates of a learner on its rollouts."""
    updates = updates_per_call(rollouts.rewards.size)

    def train() -> int:
        for _ in range(updates):
            loss = learner.update(*rollouts.collect(learner))
        loss.item()
        return updates * rollouts.rewards.size

    return train


def channels_last(observations: np.ndarray) -> Tensor:
    """[B, 4, 84, 84] -> [B, 84, 84, 4]: a view, transposed where it is copied to."""
    return torch.from_numpy(observations).permute(0, 2, 3, 1)


def keep_memory() -> None:
    """Let glibc keep what is freed: else every update maps its activations anew, thousands of page faults."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_TRIM_THRESHOLD, 2**30)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)


def make_envs(settings: Settings) -> Any:
    """As `a2c.envs.atari` makes them by default, but they reset themselves."""
    return AtariVectorEnv(
        settings.rom,
        settings.num_envs,
        num_threads=settings.threads,
        repeat_action_probability=0.0,
        autoreset_mode=AutoresetMode.SAME_STEP,
        noop_max=30,
        episodic_life=False,
        reward_clipping=False,
        use_fire_reset=True,
    )


if __name__ == "__main__":
    serve(build, ["torch", "ale-py", "numpy"])
