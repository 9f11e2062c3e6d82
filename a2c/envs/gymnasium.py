"""Scalar Gymnasium environments stepped in process: any registered id, and the classic Atari wrapper stack."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, chdir, suppress
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import AtariPreprocessing, FlattenObservation, FrameStackObservation, TransformObservation

import a2c.envs.toy  # noqa: F401 (registers the toys)
from a2c.config import EnvConfig, UserError, env_slug, nearest
from a2c.envs.vector import EnvCrashError, Outcome
from a2c.envs.wrappers import FIRE, AtariStart, Env, Filmed, FireOnLifeLoss, meanings, wrapped
from a2c.extensions import as_user_error, described, import_named
from a2c.games import TOYS, Game, atari_game, game_names

FPS = 30.0  # if the environment does not name its own
ATARI_FPS = 60.0

# Gymnasium's own environments draw with pygame, here only into memory: no greeting, no search for screen or sound
_QUIET_PYGAME = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # otherwise the emulator prints a banner


class ScalarEnvs:
    """A `Simulator` of B Gymnasium environments with Box observations and Discrete actions, stepped one by one.

    Errors of their code until the end of the first reset become a `UserError`, later ones an `EnvCrashError`.

    Args:
        make: makes one of them.
        num_envs: B.
        frames_per_step: emulator frames in one step.
        frames_per_second: display rate of the pictures.
        name: for errors.
    """

    def __init__(
        self,
        make: Callable[[], Env],
        num_envs: int,
        *,
        frames_per_step: int,
        frames_per_second: float | None = None,
        name: str,
    ) -> None:
        self._name = name
        self._started = False
        self._envs: list[Env] = []
        try:
            # it may change the folder, to which the run's path may be relative
            with chdir("."), as_user_error(f"The environment env.id={name} cannot be made"):
                for _ in range(num_envs):
                    self._envs.append(make())
        except BaseException:
            self.close()
            raise
        self.frames_per_second = frames_per_second or _display_rate(self._envs[0].metadata)
        space, actions = self._envs[0].observation_space, self._envs[0].action_space
        assert isinstance(space, Box) and isinstance(actions, Discrete)
        self.num_envs = num_envs
        self.observation_space = _kept_or_float(space)
        self.num_actions = int(actions.n)
        self.frames_per_step = frames_per_step
        self._first_action = int(actions.start)
        self._observations = np.zeros((num_envs, *space.shape), self.observation_space.dtype)
        self._lives = np.zeros(num_envs, np.int32)
        has_wrappers = self._envs[0].has_wrapper_attr("take_score")
        self._take_scores = [env.get_wrapper_attr("take_score") for env in self._envs] if has_wrappers else []

    def reset(self, mask: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Simulator`."""
        indices = np.flatnonzero(mask).tolist()
        with self._told():
            for index, seed in zip(indices, [None] * len(indices) if seeds is None else seeds.tolist(), strict=True):
                observation, info = self._envs[index].reset(seed=seed)
                self._store(index, observation, info)
                if self._take_scores:  # the agent has no part in what is paid in a reset
                    self._take_scores[index]()
            if not (self._started or np.isfinite(self._observations).all()):
                raise ValueError("its first observations are NaN or infinite, or too large for float32")
        self._started = True
        return self._observations.copy(), self._lives.copy()

    def step(self, actions: np.ndarray) -> Outcome:
        """See `Simulator`."""
        rewards = np.zeros(self.num_envs, np.float64)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        with self._told():
            for index, action in enumerate((actions.astype(np.int64) + self._first_action).tolist()):
                observation, reward, terminal, timed_out, info = self._envs[index].step(action)
                self._store(index, observation, info)
                rewards[index] = float(reward)  # NumPy would turn None into NaN
                terminated[index], truncated[index] = terminal, timed_out and not terminal
            scores = np.array([take() for take in self._take_scores]) if self._take_scores else rewards
        return Outcome(self._observations.copy(), rewards, scores, terminated, truncated, self._lives.copy())

    @property
    def action_names(self) -> list[str]:
        """The name of each action if the environment gives names as ALE does, else its number."""
        try:
            names = list(meanings(self._envs[0]))
        except (Exception, SystemExit):  # a user's code may raise anything
            names = []
        if len(names) != self.num_actions:
            return [f"action {self._first_action + i}" for i in range(self.num_actions)]
        return [str(name) for name in names]

    def take_pictures(self) -> list[np.ndarray]:
        """The pictures of the first environment since the last call, see `Filmed`."""
        return self._envs[0].get_wrapper_attr("take_pictures")()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close each environment."""
        for env in self._envs:
            _close(env)

    def _told(self) -> AbstractContextManager[None]:
        if self._started:
            return as_user_error(f"The environment env.id={self._name} failed", EnvCrashError)
        return as_user_error(f"The environment env.id={self._name} cannot be started")

    def _store(self, index: int, observation: Any, info: dict[str, Any]) -> None:
        if np.shape(observation) != self.observation_space.shape:  # otherwise it would be broadcast
            raise ValueError(
                f"it gave an observation of shape {np.shape(observation)}, and its space says "
                f"{self.observation_space.shape}"
            )
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
            self._observations[index] = observation
        self._lives[index] = info.get("lives", 0)


def atari_envs(config: EnvConfig, game: Game, *, filmed: bool = False) -> ScalarEnvs:
    """The classic wrapper stack: slower, but with exactly the frames of the native vector environment."""

    def make() -> Env:
        env = gym.make(
            f"ALE/{game.name}-v5",
            obs_type="grayscale",
            frameskip=1,  # AtariPreprocessing skips
            repeat_action_probability=config.sticky_action_probability,
            full_action_space=config.full_action_space,
            max_num_frames_per_episode=None,  # AtariStart counts
            render_mode="rgb_array" if filmed else None,
            disable_env_checker=True,
        )
        env = AtariStart(env, config)
        env = AtariPreprocessing(
            Filmed(env) if filmed else env,
            noop_max=0,  # AtariStart does the no-ops
            frame_skip=config.frame_skip,
            screen_size=config.screen_size,
            terminal_on_life_loss=False,
            grayscale_obs=True,
            grayscale_newaxis=False,
            scale_obs=False,
        )
        if config.fire_on_life_loss and FIRE in meanings(env):
            env = FireOnLifeLoss(env)
        env = wrapped(env, config)
        _check_actions(env, config)
        height, width = _screen(env, config)
        env = FrameStackObservation(env, config.frame_stack, padding_type="zero")
        space = Box(0, 255, (height, width, config.frame_stack), np.uint8)
        return TransformObservation(env, lambda frames: np.moveaxis(frames, 0, 2), space)

    frames_per_step = config.frame_skip
    return ScalarEnvs(
        make, config.num_envs, frames_per_step=frames_per_step, frames_per_second=ATARI_FPS, name=game.name
    )


def registered_envs(config: EnvConfig, *, filmed: bool = False) -> ScalarEnvs:
    """Build the environments of a toy, a registered id, or `module:Id-v0`.

    Raises:
        UserError: if there is no such environment, if it cannot be made, if its spaces are of another kind, or if it
            should be `filmed` but renders no pictures.
    """
    spec = registered_spec(config.id)
    options = {"screen_size": config.screen_size} if spec.id == TOYS["Catch"] else {}

    def make() -> Env:
        env = gym.make(spec, disable_env_checker=True, **options)
        if filmed:
            _check_renders(env, config.id)
            _close(env)
            for name, value in _QUIET_PYGAME.items():
                os.environ.setdefault(name, value)
            env = Filmed(gym.make(spec, render_mode="rgb_array", disable_env_checker=True, **options))
        env = _as_box(wrapped(env, config), config)
        _check_actions(env, config)
        return env

    return ScalarEnvs(make, config.num_envs, frames_per_step=1, name=config.id)


def registered_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """The Gymnasium spec of a toy, a registered id, or `module:Id-v0`, whose module is imported.

    Raises:
        UserError: if there is no such environment.
    """
    if not env_id.strip():
        raise UserError("env.id is empty; name a game such as Pong (`a2c envs` lists them), or another environment.")
    module, colon, name = TOYS.get(env_id, env_id).rpartition(":")
    if colon and (game := atari_game(name)):
        raise UserError(f"env.id={env_id} names a module, and {game.name} needs none; use {name}.")
    if module:
        try:
            import_named(module)
        except (Exception, SystemExit) as error:  # the user's module may raise anything
            raise UserError(
                f"The module {module!r} of {env_id!r} cannot be imported: {described(error)}; "
                "env.id=module:Id-v0 needs a module that Python finds and can run."
            ) from error
    try:
        return gym.spec(name)
    except gym.error.Error:
        # Suggest Atari games by their names, not by ale-py's 350 ids.
        ids = [spec.id for spec in gym.registry.values() if "ale_py" not in str(spec.entry_point)]
        raise UserError(
            f"There is no environment {env_id!r} (env.id); allowed are Atari games, the toys {', '.join(TOYS)}, "
            f"Gymnasium ids and module:Id-v0.{nearest(env_slug(name), [*game_names(), *TOYS, *ids])}"
        ) from None


def _called(config: EnvConfig) -> str:
    """An environment's name for errors, which its wrappers may have caused."""
    return f"env.id={config.id} in its env.wrappers" if config.wrappers else f"env.id={config.id}"


def _screen(env: Env, config: EnvConfig) -> tuple[int, int]:
    """Height and width of the screens of an Atari game, which its wrappers may have changed."""
    space = env.observation_space
    if not (isinstance(space, Box) and len(space.shape) == 2 and space.dtype == np.uint8 and min(space.shape) > 0):
        raise UserError(
            f"{_called(config)} has the observations {_named(space)}; only grey screens [height, width] of uint8 are "
            "allowed for an Atari game."
        )
    return space.shape[0], space.shape[1]


def _as_box(env: Env, config: EnvConfig) -> Env:
    """Flatten observations that are not a Box."""
    if not isinstance(env.observation_space, Box):
        env = FlattenObservation(env)
    space = env.observation_space
    if not isinstance(space, Box):
        raise UserError(
            f"{_called(config)} has the observations {_named(space)}; only a Box, or what can be flattened, is allowed."
        )
    if math.prod(space.shape) == 0:
        raise UserError(f"{_called(config)} has observations of shape {space.shape}, which hold nothing to learn from.")
    return env


def _check_actions(env: Env, config: EnvConfig) -> None:
    actions = env.action_space
    if not isinstance(actions, Discrete):
        raise UserError(
            f"{_called(config)} has the actions {_named(actions)}; only a Discrete action space is allowed."
        )
    if not 1 <= actions.n < 2**31:
        raise UserError(f"{_called(config)} has {actions.n} actions; 1 to {2**31 - 1} are allowed.")


def _check_renders(env: Env, env_id: str) -> None:
    if "rgb_array" not in env.metadata.get("render_modes", ()):
        raise UserError(f"env.id={env_id} has no pictures to show: it does not offer render_mode rgb_array.")


def _close(env: Env) -> None:
    """Close an environment; what it raises is ignored, since all it was for is done."""
    with suppress(Exception, SystemExit):
        env.close()


def _display_rate(metadata: Any) -> float:
    """The `render_fps` of an environment's metadata, or FPS if there is none, or no rate."""
    fps = metadata.get("render_fps") if isinstance(metadata, dict) else None
    return float(fps) if isinstance(fps, int | float | np.number) and 0 < fps < math.inf else FPS


def _named(space: Any) -> str:
    return " ".join(str(space).split())[:100]


def _kept_or_float(space: Box) -> Box:
    if space.dtype == np.uint8:
        return space
    with np.errstate(over="ignore"):  # float64 bounds become infinite
        return Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
