"""The Gymnasium wrappers of one environment: those a configuration names, and our own."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium as gym
import numpy as np

from a2c.config import EnvConfig, UserError
from a2c.extensions import as_user_error, find_extension, split_wrapper

Env = gym.Env[Any, Any]
FIRE = "FIRE"  # as ALE calls it


def wrapped(env: Env, config: EnvConfig) -> Env:
    """The environment in the wrappers that `env.wrappers` names, the first innermost; they are around a `RawScore`.

    Raises:
        UserError: if the user did not name one of them, it does not exist, is no wrapper, or cannot be made.
    """
    if config.wrappers:
        env = RawScore(env)
    for entry in config.wrappers:
        name, arguments = split_wrapper(entry)
        wrapper = find_extension(name, "wrapper")
        if not (isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper)):
            raise UserError(f"The wrapper {name} (env.wrappers) is none: it must be a subclass of gymnasium.Wrapper.")
        with as_user_error(f"The wrapper {name} (env.wrappers) cannot be made"):
            env = wrapper(env, **arguments)
    return env


class RawScore(gym.Wrapper[Any, Any, Any, Any]):
    """Adds up the rewards as the environment gives them, whatever the wrappers around it make of them."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._score = 0.0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Do the action and add its reward."""
        answer = self.env.step(action)
        self._score += float(answer[1])
        return answer

    def take_score(self) -> float:
        """The sum of the rewards since the last call; a wrapper may do several steps in one, or in a reset."""
        score, self._score = self._score, 0.0
        return score


class Filmed(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps a picture [H, W, 3] uint8 of the start and of every frame; must be inside wrappers that skip frames."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._pictures: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Drop the old pictures and take the first one."""
        answer = self.env.reset(seed=seed, options=options)
        self._pictures = [self._picture()]
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Do the action and take a picture."""
        answer = self.env.step(action)
        self._pictures.append(self._picture())
        return answer

    def take_pictures(self) -> list[np.ndarray]:
        """The pictures since the last call."""
        pictures, self._pictures = self._pictures, []
        return pictures

    def _picture(self) -> np.ndarray:
        with as_user_error("The environment cannot be drawn"):
            picture = np.array(self.env.render())  # a copy: some environments reuse one array
            if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
                raise ValueError(f"a picture is [height, width, 3] uint8, not {picture.dtype} {picture.shape}")
        return picture


class AtariStart(gym.Wrapper[Any, Any, Any, Any]):
    """Seeds, starts and limits episodes exactly as the native vector environment does.

    Gymnasium's own wrappers draw 1 to noop_max no-ops from another generator, hash the emulator's seed and count the
    no-ops in the frame limit. This wrapper is inside AtariPreprocessing and steps single frames.
    """

    def __init__(self, env: Env, config: EnvConfig) -> None:
        super().__init__(env)
        self._noop_max = config.noop_max
        self._max_frames = config.max_frames_per_episode
        self._fires = config.fire_reset and FIRE in meanings(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the last `seed` determines sticky actions and no-ops."""
        atari: Any = self.env.unwrapped
        ale = atari.ale
        if seed is not None:
            ale.setInt("random_seed", seed)
            atari.load_game()  # the emulator applies the seed only now
            self._noops = np.random.RandomState(seed)  # C++'s Mersenne twister, seeded the same way
            self.np_random, _ = gym.utils.seeding.np_random(seed)  # for wrappers that draw, such as Gymnasium's own
        observation, info = self.env.reset(options=options)
        if self._fires:
            ale.act(ale_py.Action.FIRE)
        for _ in range(_native_noops(self._noops, self._noop_max) - self._fires):
            ale.act(ale_py.Action.NOOP)
            if ale.game_over():
                ale.reset_game()
        self._frames = 0
        return observation, {**info, "lives": ale.lives()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step one frame."""
        observation, reward, terminated, _, info = self.env.step(action)
        self._frames += 1
        return observation, reward, terminated, not terminated and self._frames >= self._max_frames, info


class FireOnLifeLoss(gym.Wrapper[Any, Any, Any, Any]):
    """Replaces the action by FIRE in the step after a lost life, to serve the next ball.

    It is outside of AtariPreprocessing, so that FIRE is held for a whole step.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._fire = meanings(env).index(FIRE)
        self._lives = 0
        self._life_lost = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives, self._life_lost = info["lives"], False
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Do the action, or FIRE."""
        answer = self.env.step(self._fire if self._life_lost else action)
        lives = answer[-1]["lives"]
        self._life_lost, self._lives = lives < self._lives, lives
        return answer


def meanings(env: Env) -> list[Any]:
    """An environment's names of its actions, as in ALE; empty if it has none."""
    return getattr(env.unwrapped, "get_action_meanings", list)()


def _native_noops(generator: np.random.RandomState, noop_max: int) -> int:
    """The next draw of C++'s `uniform_int_distribution(0, noop_max - 1)` from `mt19937`, as in libstdc++."""
    bound = max(noop_max, 1)
    while True:
        product = int(generator.randint(0, 2**32, dtype=np.uint32)) * bound
        if product % 2**32 >= 2**32 % bound:  # Lemire's rejection
            return product >> 32
