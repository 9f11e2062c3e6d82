"""Scalar Gymnasium environments stepped in process: any registered id, and the classic Atari wrapper stack."""

from __future__ import annotations

import importlib
import math
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import AtariPreprocessing, FlattenObservation, FrameStackObservation, TransformObservation

import a2c.envs.toy  # noqa: F401 (registers the toys)
from a2c.config import EnvConfig, UserError, env_slug, nearest
from a2c.envs.vector import Outcome
from a2c.games import TOYS, Game, game_names

Env = gym.Env[Any, Any]
FPS = 30.0  # if the environment does not name its own
ATARI_FPS = 60.0
FIRE = "FIRE"  # as ALE calls it

# Gymnasium's own environments draw with pygame, here only into memory: no greeting, no search for screen or sound
_QUIET_PYGAME = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # otherwise the emulator prints a banner


class ScalarEnvs:
    """A `Simulator` of B Gymnasium environments with Box observations and Discrete actions, stepped one by one.

    Errors of their code in the first reset become a `UserError`. Later errors are raised unchanged: a run is under way
    then, and it keeps what is needed to repeat them.

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
        self._envs = [make() for _ in range(num_envs)]
        self.frames_per_second = frames_per_second or float(self._envs[0].metadata.get("render_fps") or FPS)
        space, actions = self._envs[0].observation_space, self._envs[0].action_space
        assert isinstance(space, Box) and isinstance(actions, Discrete)
        self.num_envs = num_envs
        self.observation_space = _kept_or_float(space)
        self.num_actions = int(actions.n)
        self.frames_per_step = frames_per_step
        self._first_action = int(actions.start)
        self._observations = np.zeros((num_envs, *space.shape), self.observation_space.dtype)
        self._lives = np.zeros(num_envs, np.int32)

    def reset(self, mask: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Simulator`."""
        indices = np.flatnonzero(mask).tolist()
        try:
            for index, seed in zip(indices, [None] * len(indices) if seeds is None else seeds.tolist(), strict=True):
                observation, info = self._envs[index].reset(seed=seed)
                self._store(index, observation, info)
            if not (self._started or np.isfinite(self._observations).all()):
                raise ValueError("its first observations are NaN or infinite")
        except Exception as error:  # the environment's code may raise anything
            if self._started or isinstance(error, UserError):
                raise
            raise UserError(
                f"The environment env.id={self._name} cannot be started: {_first_line(error)}{_place(error)}."
            ) from error
        self._started = True
        return self._observations.copy(), self._lives.copy()

    def step(self, actions: np.ndarray) -> Outcome:
        """See `Simulator`."""
        rewards = np.zeros(self.num_envs, np.float64)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        for index, action in enumerate((actions + self._first_action).tolist()):
            observation, reward, terminal, timed_out, info = self._envs[index].step(action)
            self._store(index, observation, info)
            rewards[index] = float(reward)  # NumPy would turn None into NaN
            terminated[index], truncated[index] = terminal, timed_out and not terminal
        return Outcome(self._observations.copy(), rewards, terminated, truncated, self._lives.copy())

    @property
    def action_names(self) -> list[str]:
        """The name of each action if the environment gives names as ALE does, else its number."""
        meanings = _meanings(self._envs[0])
        if len(meanings) != self.num_actions:
            return [f"action {self._first_action + i}" for i in range(self.num_actions)]
        return [str(meaning) for meaning in meanings]

    def take_pictures(self) -> list[np.ndarray]:
        """The pictures of the first environment since the last call, see `Filmed`."""
        return self._envs[0].get_wrapper_attr("take_pictures")()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close each environment."""
        for env in self._envs:
            env.close()

    def _store(self, index: int, observation: Any, info: dict[str, Any]) -> None:
        if np.shape(observation) != self.observation_space.shape:  # otherwise it would be broadcast
            raise ValueError(
                f"it gave an observation of shape {np.shape(observation)}, and its space says "
                f"{self.observation_space.shape}"
            )
        self._observations[index] = observation
        self._lives[index] = info.get("lives", 0)


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
        try:
            picture = np.array(self.env.render())  # a copy: some environments reuse one array
            if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
                raise ValueError(f"a picture is [height, width, 3] uint8, not {picture.dtype} {picture.shape}")
        except Exception as error:  # the environment's code may raise anything
            raise UserError(f"The environment cannot be drawn: {_first_line(error)}{_place(error)}.") from error
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
        self._fires = config.fire_reset and FIRE in _meanings(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the last `seed` determines sticky actions and no-ops."""
        atari: Any = self.env.unwrapped
        ale = atari.ale
        if seed is not None:
            ale.setInt("random_seed", seed)
            atari.load_game()  # the emulator applies the seed only now
            self._noops = np.random.RandomState(seed)  # C++'s Mersenne twister, seeded the same way
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
        self._fire = _meanings(env).index(FIRE)
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
        if config.fire_on_life_loss and FIRE in _meanings(env):
            env = FireOnLifeLoss(env)
        env = FrameStackObservation(env, config.frame_stack, padding_type="zero")
        space = Box(0, 255, (config.screen_size, config.screen_size, config.frame_stack), np.uint8)
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
        try:
            env = gym.make(spec, disable_env_checker=True, **options)
            if filmed:
                _check_renders(env, config.id)
                for name, value in _QUIET_PYGAME.items():
                    os.environ.setdefault(name, value)
                env = Filmed(gym.make(spec, render_mode="rgb_array", disable_env_checker=True, **options))
            env = _as_box(env, config.id)
            _check_actions(env, config.id)
        except UserError:
            raise
        except Exception as error:  # the environment's code may raise anything
            raise UserError(
                f"The environment env.id={config.id} cannot be made: {_first_line(error)}{_place(error)}."
            ) from error
        return env

    return ScalarEnvs(make, config.num_envs, frames_per_step=1, name=config.id)


def registered_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """The Gymnasium spec of a toy, a registered id, or `module:Id-v0`, whose module is imported.

    Raises:
        UserError: if there is no such environment.
    """
    if not env_id.strip():
        raise UserError("env.id is empty; name a game such as Pong (`a2c envs` lists them), or another environment.")
    module, _, name = TOYS.get(env_id, env_id).rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:  # the user's module may raise anything
            raise UserError(
                f"The module {module!r} of {env_id!r} cannot be imported: {_first_line(error)}{_place(error)}; "
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


def _first_line(error: BaseException) -> str:
    text = " ".join(str(error).strip().splitlines()[:1])[:200].rstrip(". ")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """` (file, line 3)`: the innermost traceback line outside of this module, if any."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, importlib.__file__) and not frame.filename.startswith("<frozen")
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _as_box(env: Env, env_id: str) -> Env:
    """Flatten observations that are not a Box."""
    if not isinstance(env.observation_space, Box):
        env = FlattenObservation(env)
    space = env.observation_space
    if not isinstance(space, Box):
        raise UserError(
            f"env.id={env_id} has the observations {_named(space)}; only a Box, or what can be flattened, is allowed."
        )
    if math.prod(space.shape) == 0:
        raise UserError(f"env.id={env_id} has observations of shape {space.shape}, which hold nothing to learn from.")
    return env


def _check_actions(env: Env, env_id: str) -> None:
    actions = env.action_space
    if not isinstance(actions, Discrete):
        raise UserError(f"env.id={env_id} has the actions {_named(actions)}; only a Discrete action space is allowed.")
    if not 1 <= actions.n < 2**31:
        raise UserError(f"env.id={env_id} has {actions.n} actions; 1 to {2**31 - 1} are allowed.")


def _check_renders(env: Env, env_id: str) -> None:
    if "rgb_array" not in env.metadata.get("render_modes", ()):
        raise UserError(f"env.id={env_id} has no pictures to show: it does not offer render_mode rgb_array.")


def _named(space: Any) -> str:
    return " ".join(str(space).split())[:100]


def _kept_or_float(space: Box) -> Box:
    if space.dtype == np.uint8:
        return space
    with np.errstate(over="ignore"):  # float64 bounds become infinite
        return Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)


def _meanings(env: Env) -> list[Any]:
    """An environment's names of its actions, as in ALE; empty if it has none."""
    return getattr(env.unwrapped, "get_action_meanings", list)()


def _native_noops(generator: np.random.RandomState, noop_max: int) -> int:
    """The next draw of C++'s `uniform_int_distribution(0, noop_max - 1)` from `mt19937`, as in libstdc++."""
    bound = max(noop_max, 1)
    while True:
        product = int(generator.randint(0, 2**32, dtype=np.uint32)) * bound
        if product % 2**32 >= 2**32 % bound:  # Lemire's rejection
            return product >> 32
