"""Atari on ale-py's native vector environment: C++ threads emulate and preprocess the frames."""

from __future__ import annotations

import ale_py
import cv2
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from a2c.config import EnvConfig
from a2c.envs.vector import Outcome
from a2c.execution.machine import allowed_cores
from a2c.games import Game

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # otherwise the emulator prints a banner


class NativeAtari:
    """A `Simulator` of B copies of one game.

    Observations are [B, screen_size, screen_size, frame_stack] uint8, the newest frame last. A reset presses FIRE
    if the game has it (`fire_reset`), then waits 0 to `noop_max` - 1 frames, the FIRE counted. In the step after a
    lost life, FIRE replaces the action if the game has it (`fire_on_life_loss`). The screen is not grabbed in the
    frame that ends an episode, so a last observation is a few frames old. There is no `render`: for pictures, the
    wrapper stack plays the same episode from the same seed.

    Args:
        config: number of environments, and settings of the game.
        game: which game.
        core: the core of the first emulator thread; further threads use the next ones; None = any.
    """

    def __init__(self, config: EnvConfig, game: Game, *, core: int | None = None) -> None:
        self._envs = AtariVectorEnv(
            game.rom,
            config.num_envs,
            # batch_size < num_envs would return the environments that are ready first: not reproducible.
            batch_size=config.num_envs,
            # by itself it also counts cores that this process may not use
            num_threads=min(config.threads or allowed_cores(), config.num_envs),
            thread_affinity_offset=-1 if core is None else core,
            max_num_frames_per_episode=config.max_frames_per_episode,  # after the reset: no-ops not counted
            repeat_action_probability=config.sticky_action_probability,  # default: 0.25 in make_vec, 0 here
            full_action_space=config.full_action_space,
            continuous=False,
            continuous_action_threshold=0.5,  # no effect, as continuous is off
            # The step in which this mode ignores the action never comes: VecEnv resets ended episodes at once, with
            # its own seeds, which cancels the pending reset. SAME_STEP would reset each of them twice.
            autoreset_mode=AutoresetMode.NEXT_STEP,
            img_height=config.screen_size,
            img_width=config.screen_size,
            grayscale=True,
            stack_num=config.frame_stack,
            frameskip=config.frame_skip,
            maxpool=True,
            noop_max=config.noop_max,
            episodic_life=False,  # it would restart the whole game at each lost life
            life_loss_info=False,  # it would call a lost life `terminated`
            reward_clipping=False,  # it would discard the true score
            use_fire_reset=config.fire_reset,
        )
        self.num_envs = config.num_envs
        self.observation_space: Box = Box(
            0, 255, (config.screen_size, config.screen_size, config.frame_stack), np.uint8
        )
        actions = self._envs.ale.get_action_set()
        self.num_actions = len(actions)
        self.frames_per_step = config.frame_skip
        self._fire = (
            actions.index(ale_py.Action.FIRE) if config.fire_on_life_loss and ale_py.Action.FIRE in actions else None
        )
        self._lives = np.zeros(config.num_envs, np.int32)
        self._life_lost = np.zeros(config.num_envs, np.bool_)  # in the step before

    def reset(self, mask: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """See `Simulator`. Takes 65 ms with a seed, since the emulator reloads the game to apply it, else 4 ms."""
        # An array of seeds: an int s would mean s, s+1, ..., which overlaps with the seeds of the next run seed.
        observations, info = self._envs.reset(seed=seeds, options={"reset_mask": mask})
        self._lives = info["lives"]
        self._life_lost = self._life_lost & ~mask
        return _channels_last(observations), self._lives

    def step(self, actions: np.ndarray) -> Outcome:
        """See `Simulator`. C++ returns new arrays each time."""
        if self._fire is not None:
            actions = np.where(self._life_lost, np.int32(self._fire), actions)
        observations, rewards, terminated, truncated, info = self._envs.step(actions)
        self._life_lost = info["lives"] < self._lives
        self._lives = info["lives"]
        return Outcome(_channels_last(observations), rewards, rewards, terminated, truncated, self._lives)

    def close(self) -> None:
        """Stop the emulator threads."""
        self._envs.close()


def _channels_last(images: np.ndarray) -> np.ndarray:
    """[B, C, H, W] -> [B, H, W, C], as convolutions need it; NumPy and TensorFlow transpose 20 times slower."""
    b, channels, height, width = images.shape
    planes = images.reshape(b, channels, height * width)
    merged: np.ndarray = cv2.merge([planes[:, channel] for channel in range(channels)])
    return merged.reshape(b, height, width, channels)
