"""Three small environments for demos, tests and quick comparisons: Catch, Bandit, Chain.

They are registered in Gymnasium when this module is imported.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from a2c.games import TOYS

Reset = tuple[np.ndarray, dict[str, Any]]
Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class Catch(gym.Env[np.ndarray, np.int64]):
    """A ball falls one row a step; be under it when it lands. After bsuite's Catch (Osband et al. 2020).

    The observation is one grey image [screen_size, screen_size, 1] uint8. Actions: left, stay, right. The reward
    is +1 for a caught ball, -1 for a missed one, else 0.

    Args:
        screen_size: pixels of each side; pixels left over by whole cells stay black.
        render_mode: rgb_array or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012 (as Gymnasium declares it)
    COLOURS = ((16, 20, 26), (240, 160, 48), (120, 190, 240))  # background, ball, paddle
    GRID = 12  # rows and columns

    def __init__(self, *, screen_size: int = 84, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = Box(0, 255, (screen_size, screen_size, 1), np.uint8)
        self.action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Put the paddle in the middle and drop a ball."""
        super().reset(seed=seed)
        self._paddle = self.GRID // 2
        self._row, self._column = 0, int(self.np_random.integers(self.GRID))
        return self._draw(), {}

    def step(self, action: np.int64) -> Step:
        """Move the paddle by action - 1; the ball falls."""
        self._paddle = min(max(self._paddle + int(action) - 1, 0), self.GRID - 1)
        self._row += 1
        if self._row < self.GRID - 1:
            return self._draw(), 0.0, False, False, {}
        return self._draw(), 1.0 if self._column == self._paddle else -1.0, True, False, {}

    def render(self) -> np.ndarray:
        """A colour version [192, 192, 3] uint8 of the grey image of `_draw`."""
        cells = np.full((self.GRID, self.GRID, 3), self.COLOURS[0], np.uint8)
        cells[self._row, self._column] = self.COLOURS[1]
        cells[self.GRID - 1, self._paddle] = self.COLOURS[2]
        return cells.repeat(16, axis=0).repeat(16, axis=1)

    def get_action_meanings(self) -> list[str]:
        """The names of the actions, as in ALE."""
        return ["LEFT", "STAY", "RIGHT"]

    def _draw(self) -> np.ndarray:
        image = np.zeros(self.observation_space.shape or (), np.uint8)
        cell = image.shape[0] // self.GRID
        for row, column in ((self._row, self._column), (self.GRID - 1, self._paddle)):
            image[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = 255
        return image


class Bandit(gym.Env[np.ndarray, np.int64]):
    """A two-armed bandit: one-step episodes, arm 0 pays 1 with probability 0.2, arm 1 with 0.8.

    The observation is always [1.0] float32.
    """

    PAYOUTS = (0.2, 0.8)

    def __init__(self) -> None:
        self.observation_space = Box(0.0, 1.0, (1,), np.float32)
        self.action_space = Discrete(len(self.PAYOUTS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Start the one-step episode."""
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: np.int64) -> Step:
        """Pull an arm."""
        reward = float(self.np_random.random() < self.PAYOUTS[action])
        return np.ones(1, np.float32), reward, True, False, {}

    def get_action_meanings(self) -> list[str]:
        """The names of the actions, as in ALE."""
        return ["arm 0", "arm 1"]


class Chain(gym.Env[np.ndarray, np.int64]):
    """A small reward near, a large one far away: after Strens' NChain (2000), without slips.

    Left (0) goes back to the first state and pays 0.1; right (1) goes to the next state. In the last state, right
    stays there and pays 1. Episodes are only ever truncated: an agent that treats this as termination undervalues the
    large reward. The observation is the state, one-hot [LENGTH] float32.
    """

    LENGTH = 6  # states

    def __init__(self) -> None:
        self.observation_space = Box(0.0, 1.0, (self.LENGTH,), np.float32)
        self.action_space = Discrete(2)
        self._one_hot = np.eye(self.LENGTH, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Go to the first state."""
        super().reset(seed=seed)
        self._state = 0
        return self._one_hot[0].copy(), {}

    def step(self, action: np.int64) -> Step:
        """Go left or right."""
        last = self.LENGTH - 1
        if action == 0:
            reward, self._state = 0.1, 0
        else:
            reward, self._state = float(self._state == last), min(self._state + 1, last)
        return self._one_hot[self._state].copy(), reward, False, False, {}

    def get_action_meanings(self) -> list[str]:
        """The names of the actions, as in ALE."""
        return ["LEFT", "RIGHT"]


gym.register(TOYS["Catch"], entry_point=f"{__name__}:Catch")
gym.register(TOYS["Bandit"], entry_point=f"{__name__}:Bandit")
gym.register(TOYS["Chain"], entry_point=f"{__name__}:Chain", max_episode_steps=32)
