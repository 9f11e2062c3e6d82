"""The vector environment the rest of the program sees, and all book-keeping of episodes.

B = num_envs. A `Simulator` only steps and resets; what an episode is, how it is seeded, scored and resumed is
decided here, once for every backend.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from a2c.config import UserError
from a2c.envs.action_log import ActionLog
from a2c.trajectory import Episode, VecStep

if TYPE_CHECKING:
    from gymnasium.spaces import Box

_STATE = {"episode_numbers": "iu", "episode_lengths": "iu", "episode_returns": "f", "episode_actions": "u"}


class Outcome(NamedTuple):
    """What a simulator answers to one batch of actions, before any reset."""

    observations: np.ndarray  # [B, *obs]: the last one where an episode ended
    rewards: np.ndarray  # [B], raw
    terminated: np.ndarray  # [B] bool: game over
    truncated: np.ndarray  # [B] bool: a time limit, and not game over
    lives: np.ndarray  # [B] int; 0 where the environment has none


class Simulator(Protocol):
    """A backend: B environments, each a function of the seed of its last reset and of the actions since.

    Arrays it returns are never written to again. An environment whose episode ended is reset before the next
    step.
    """

    num_envs: int
    observation_space: Box  # of one environment
    num_actions: int
    frames_per_step: int

    def reset(self, mask: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start an episode in the environments of mask [B] bool with seeds [mask.sum()], 31 bits each.

        Returns:
            Observations [B, *obs] and lives [B] of all environments, those not in mask as they were.
        """
        ...

    def step(self, actions: np.ndarray) -> Outcome:
        """Do actions [B] int32."""
        ...

    def close(self) -> None:
        """Free the environments."""
        ...


def episode_seed(seed: int, stream: str, env_index: int, number: int) -> int:
    """The seed of one episode: a hash, so that neither run seeds, streams nor environments overlap.

    Args:
        seed: of the run, below 2**64.
        stream: what the environments are for, such as `train`.
        env_index: of the sub-environment.
        number: of the episode in this sub-environment, from 0.

    Returns:
        An int in [0, 2**31): what every emulator and Gymnasium environment accepts.
    """
    # Always five words: SeedSequence pads short input with zeros, so words of varying number could collide.
    words = (seed & 0xFFFF_FFFF, seed >> 32, zlib.crc32(stream.encode()), env_index, number)
    return int(np.random.SeedSequence(words).generate_state(1)[0]) & 0x7FFF_FFFF


class VecEnv:
    """B environments that are stepped together and start the next episode by themselves.

    An episode is a function of its seed and its actions; its seed is one of (run seed, stream, environment,
    episode number). So `state` need hold no more than the numbers and actions of the running episodes.

    Attributes:
        num_envs: B.
        observation_space: of one environment.
        num_actions: actions are 0 to num_actions - 1.
        frames_per_step: emulator frames in one step; 1 where there is no emulator.
        name: short, for display.
        clips_rewards: whether the loss is to see only the sign of rewards; those given out are always raw.
    """

    def __init__(self, simulator: Simulator, *, name: str, clips_rewards: bool, seed: int, stream: str) -> None:
        self.num_envs = simulator.num_envs
        self.observation_space = simulator.observation_space
        self.num_actions = simulator.num_actions
        self.frames_per_step = simulator.frames_per_step
        self.name = name
        self.clips_rewards = clips_rewards
        self._simulator = simulator
        self._seed = seed
        self._stream = stream
        self._begin(np.zeros(self.num_envs, np.int64))

    def reset(self) -> np.ndarray:
        """Start episode 0 of every environment; returns observations [B, *obs]."""
        self._begin(np.zeros(self.num_envs, np.int64))
        observations, self._lives = self._simulator.reset(np.ones(self.num_envs, np.bool_), self._seeds)
        return observations

    def step(self, actions: np.ndarray) -> VecStep:
        """Do actions [B] int; where an episode ends, the next one starts in the same step.

        Returns:
            The outcome; its arrays are the caller's to keep.

        Raises:
            ValueError: if actions are not B integers in [0, num_actions).
        """
        actions = self._checked(actions)
        outcome = self._simulator.step(actions)
        self._log.append(actions)
        self._returns += outcome.rewards
        ended = outcome.terminated | outcome.truncated
        life_lost = (outcome.lives < self._lives) & ~ended
        self._lives = outcome.lives
        observations: np.ndarray = outcome.observations
        episodes: tuple[Episode, ...] = ()
        if ended.any():
            episodes = self._finished(ended)
            observations = self._start_next(ended)
        return VecStep(
            observations=observations,
            rewards=outcome.rewards.astype(np.float32),
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            life_lost=life_lost,
            final_observations=outcome.observations,
            episodes=episodes,
        )

    def state(self) -> dict[str, np.ndarray]:
        """All that decides what comes next: plain arrays, see `restore`."""
        actions, lengths = self._log.pack()
        return {
            "episode_numbers": self._numbers.copy(),  # [B]
            "episode_lengths": lengths,  # [B]
            "episode_returns": self._returns.copy(),  # [B]; not needed, but a check that the replay is the same
            "episode_actions": actions,  # [sum of lengths]
        }

    def restore(self, state: Mapping[str, Any]) -> np.ndarray:
        """Go on exactly where `state` was taken, by playing the running episodes again.

        Returns:
            The current observations [B, *obs], bit for bit.

        Raises:
            UserError: if the state is not one of this environment.
        """
        numbers, lengths, returns, actions = self._read(state)
        self._begin(numbers)
        self._log.load(actions, lengths)
        observations = self._replay()
        if not np.array_equal(self._returns, returns):
            _misfit("its episodes give other rewards when they are played again")
        return observations

    def close(self) -> None:
        """Free the environments."""
        self._simulator.close()

    def __enter__(self) -> VecEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, numbers: np.ndarray) -> None:
        self._numbers = numbers
        self._seeds = np.array([self._episode_seed(index) for index in range(self.num_envs)], np.int64)
        self._lives = np.zeros(self.num_envs, np.int32)
        self._returns = np.zeros(self.num_envs, np.float64)
        self._log = ActionLog(self.num_envs, self.num_actions)

    def _episode_seed(self, index: int) -> int:
        return episode_seed(self._seed, self._stream, index, int(self._numbers[index]))

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        # The native environment waits for ever if one of its threads meets an action that does not exist.
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be {self.num_envs} integers, not {actions.dtype} {actions.shape}")
        if actions.min() < 0 or actions.max() >= self.num_actions:
            raise ValueError(f"actions must be in [0, {self.num_actions}), not {actions}")
        return actions.astype(np.int32, copy=False)

    def _finished(self, ended: np.ndarray) -> tuple[Episode, ...]:
        lengths = self._log.lengths
        return tuple(
            Episode(
                env_index=index,
                number=int(self._numbers[index]),
                seed=int(self._seeds[index]),
                episode_return=float(self._returns[index]),
                length=int(lengths[index]),
                # The unit of published budgets: steps times skip, without the no-ops of the reset.
                frames=int(lengths[index]) * self.frames_per_step,
            )
            for index in np.flatnonzero(ended).tolist()
        )

    def _start_next(self, ended: np.ndarray) -> np.ndarray:
        self._numbers[ended] += 1
        for index in np.flatnonzero(ended).tolist():
            self._seeds[index] = self._episode_seed(index)
        self._returns[ended] = 0.0
        self._log.restart(ended)
        observations, self._lives = self._simulator.reset(ended, self._seeds[ended])
        return observations

    def _replay(self) -> np.ndarray:
        """Play the log. All its episodes end at its last row; until its own starts, an environment idles."""
        rows, starts = self._log.aligned()
        due = np.ones(self.num_envs, np.bool_)  # a simulator's first reset is of all environments
        for t in range(len(rows) + 1):
            due |= starts == t
            if due.any():
                observations, self._lives = self._simulator.reset(due, self._seeds[due])
                self._returns[due] = 0.0
            if t == len(rows):
                break
            observations, rewards, terminated, truncated, self._lives = self._simulator.step(rows[t].astype(np.int32))
            self._returns += rewards
            due = terminated | truncated
            if (due & (starts <= t)).any():
                _misfit("an episode ends before its actions do when they are played again")
        return observations

    def _read(self, state: Mapping[str, Any]) -> list[np.ndarray]:
        if set(state) != set(_STATE):
            _misfit(f"it holds {', '.join(sorted(state)) or 'nothing'}, not {', '.join(sorted(_STATE))}")
        arrays = {key: np.asarray(state[key]) for key in _STATE}
        numbers, lengths, returns, actions = arrays.values()
        for key, array in arrays.items():
            shape = actions.shape[:1] if key == "episode_actions" else (self.num_envs,)
            if array.shape != shape or array.dtype.kind not in _STATE[key]:
                _misfit(f"{key} is {array.dtype} of shape {array.shape}, which is not of {self.num_envs} environments")
        if min(numbers.min(), lengths.min()) < 0 or lengths.max() > len(actions) or lengths.sum() != len(actions):
            _misfit("its lengths, numbers and actions contradict each other")
        if (actions >= self.num_actions).any():
            _misfit(f"it holds the action {actions.max()}, and {self.name} has {self.num_actions}")
        return [numbers.astype(np.int64), lengths.astype(np.int64), returns, actions]


def _misfit(what: str) -> NoReturn:
    raise UserError(f"The checkpoint does not fit this environment: {what}.")
