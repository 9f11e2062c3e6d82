"""The vector environment for the rest of the program, with all book-keeping of episodes.

B = num_envs. A `Simulator` only steps and resets; this module defines, seeds, scores and resumes episodes, for every
backend.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from a2c.config import CrashError, UserError
from a2c.data.rollout import Episode, VecStep
from a2c.envs.action_log import ActionLog
from a2c.extensions import described

if TYPE_CHECKING:
    from gymnasium.spaces import Box

_STATE = {
    "episode_numbers": "iu",
    "episode_returns": "f",
    "series_numbers": "iu",
    "series_lengths": "iu",
    "series_actions": "u",
    "observation_digests": "u",
}

_LAST_NUMBER = 2**62  # of an episode, far below the limit of int64
_LARGEST_LOG = 2**29  # actions, as rows of all environments, of which two copies are made


class EnvCrashError(CrashError):
    """The code of an environment raised an error after its first reset: the cause."""

    @property
    def cause(self) -> BaseException:
        """What it raised."""
        assert self.__cause__ is not None
        return self.__cause__


class Outcome(NamedTuple):
    """The result of one step of a simulator, before any reset."""

    observations: np.ndarray  # [B, *obs]: the last one if the episode ended
    rewards: np.ndarray  # [B]: what is learned from, raw unless a wrapper of the configuration changes them
    scores: np.ndarray  # [B]: raw rewards, whose sum is the score of an episode
    terminated: np.ndarray  # [B] bool: game over
    truncated: np.ndarray  # [B] bool: time limit reached, not game over
    lives: np.ndarray  # [B] int; 0 if the environment has none


class Simulator(Protocol):
    """A backend: B environments, each a function of its last seed and of the actions and resets since.

    Its methods raise `EnvCrashError` if a user's environment raises after its first reset.

    It never changes arrays that it has returned. The caller resets an environment whose episode ended before the next
    step.
    """

    num_envs: int
    observation_space: Box  # of one environment
    num_actions: int
    frames_per_step: int

    def reset(self, mask: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Start an episode in the environments of mask [B] bool; the first reset is of all of them, with seeds.

        Args:
            mask: which environments.
            seeds: [mask.sum()] of 31 bits each; None continues with the current random numbers of each.

        Returns:
            Observations [B, *obs] and lives [B] of all environments, unchanged for those not in mask.
        """
        ...

    def step(self, actions: np.ndarray) -> Outcome:
        """Do actions [B] int32."""
        ...

    def close(self) -> None:
        """Free the environments."""
        ...


def episode_seed(seed: int, stream: str, env_index: int, number: int) -> int:
    """The seed of one episode: a hash, so that run seeds, streams and environments do not overlap.

    Args:
        seed: of the run, below 2**64.
        stream: the use of the environments, such as `train`.
        env_index: of the environment.
        number: of the episode in this environment, from 0; the first one that is played with this seed.

    Returns:
        An int in [0, 2**31), which every emulator and Gymnasium environment accepts.
    """
    # Always five words: SeedSequence pads short input with zeros, so inputs of different lengths could collide.
    words = (seed & 0xFFFF_FFFF, seed >> 32, zlib.crc32(stream.encode()), env_index, number)
    return int(np.random.SeedSequence(words).generate_state(1)[0]) & 0x7FFF_FFFF


class VecEnv:
    """B environments that are stepped together and start the next episode by themselves.

    Each environment plays series of episodes: its random numbers are seeded when a series starts, from (run seed,
    stream, environment, number of the first episode), and not again within it. So a series is a function of its seed
    and its actions, and `state` holds only the numbers and actions of the running series.

    Args:
        simulator: the environments.
        name: for errors.
        seed: of the run.
        stream: the use of the environments.
        first: number of the first environment among those of all workers.
        reseed_after: a series ends with the episode in which it reaches this number of steps; 0: after each episode.

    Attributes:
        num_envs: B.
        observation_space: of one environment.
        num_actions: actions are 0 to num_actions - 1.
        frames_per_step: emulator frames in one step; 1 if there is no emulator.
    """

    def __init__(
        self,
        simulator: Simulator,
        *,
        name: str,
        seed: int,
        stream: str,
        first: int = 0,
        reseed_after: int = 0,
    ) -> None:
        self.num_envs = simulator.num_envs
        self.observation_space = simulator.observation_space
        self.num_actions = simulator.num_actions
        self.frames_per_step = simulator.frames_per_step
        self.name = name
        self._simulator = simulator
        self._seed = seed
        self._stream = stream
        self._first = first
        self._reseed_after = reseed_after
        self._lives: np.ndarray
        self._observations: np.ndarray

    def reset(self) -> np.ndarray:
        """Start episode 0 of every environment; returns observations [B, *obs]."""
        self._begin(np.zeros(self.num_envs, np.int64))
        everywhere = np.ones(self.num_envs, np.bool_)
        self._observations = self._start(everywhere, seeded=everywhere)
        return self._observations

    def step(self, actions: np.ndarray) -> VecStep:
        """Do actions [B] int; if an episode ends, the next one starts in the same step.

        Returns:
            The outcome; its arrays are not changed later.

        Raises:
            ValueError: if actions are not B integers in [0, num_actions).
        """
        actions = self._checked(actions)
        outcome = self._simulator.step(actions)
        self._log.append(actions)
        with np.errstate(over="ignore"):  # what is too large becomes infinite
            self._returns += outcome.scores
            rewards = outcome.rewards.astype(np.float32)
        self._lengths += 1
        ended = outcome.terminated | outcome.truncated
        life_lost = (outcome.lives < self._lives) & ~ended
        self._lives = outcome.lives
        self._observations = outcome.observations
        episodes: tuple[Episode, ...] = ()
        if ended.any():
            episodes = self._finished(ended)
            self._observations = self._start_next(ended, seeded=ended & (self._log.lengths >= self._reseed_after))
        return VecStep(
            observations=self._observations,
            rewards=rewards,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            life_lost=life_lost,
            final_observations=outcome.observations,
            episodes=episodes,
        )

    def state(self) -> dict[str, np.ndarray]:
        """All that determines the future of the environments, as plain arrays: see `restore`."""
        actions, lengths = self._log.pack()
        return {
            "episode_numbers": self._numbers.copy(),  # [B]
            "episode_returns": self._returns.copy(),  # [B]
            "series_numbers": self._series.copy(),  # [B]: of the first episode
            "series_lengths": lengths,  # [B]
            "series_actions": actions,  # [sum of lengths]
            "observation_digests": _digests(self._observations),  # [B]; they reveal a replay that differs
        }

    def restore(self, state: Mapping[str, Any]) -> tuple[np.ndarray, int]:
        """Continue exactly where `state` was taken, by replaying the running series.

        An environment whose replay differs, since it is not a function of its seed and actions, starts its next
        episode instead.

        Returns:
            The current observations [B, *obs], and the number of environments whose replay differed; if it is 0, the
            observations have the same bits as when `state` was taken.

        Raises:
            UserError: if the state does not belong to this environment.
            CrashError: if the environment raises.
        """
        arrays = read_state(state, self.num_envs, self.num_actions, self.name)
        numbers, returns, series, lengths, actions, digests = arrays.values()
        self._begin(series)
        self._log.load(actions, lengths)
        try:
            self._observations = self._replay()
        except EnvCrashError as error:
            raise CrashError(
                f"{self.name} raised {described(error.cause)} while the actions of its running games were played "
                "again, so the run cannot be resumed."
            ) from error
        lost = (
            (self._numbers != numbers)
            | (self._returns.view(np.int64) != returns.view(np.int64))  # bits, since NaN is not NaN
            | (_digests(self._observations) != digests)
        )
        if lost.any():
            self._numbers[lost] = numbers[lost]
            self._observations = self._start_next(lost, seeded=lost)
        return self._observations, int(lost.sum())

    def close(self) -> None:
        """Free the environments."""
        self._simulator.close()

    def __enter__(self) -> VecEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, numbers: np.ndarray) -> None:
        """Set the counters to the start of the series that begin with the episodes `numbers` [B]."""
        self._numbers, self._series = numbers.copy(), numbers.copy()
        self._seeds = np.array([self._series_seed(index) for index in range(self.num_envs)], np.int64)
        self._lives = np.zeros(self.num_envs, np.int32)
        self._returns: np.ndarray = np.zeros(self.num_envs, np.float64)
        self._lengths: np.ndarray = np.zeros(self.num_envs, np.int64)
        self._log: ActionLog = ActionLog(self.num_envs, self.num_actions)

    def _series_seed(self, index: int) -> int:
        return episode_seed(self._seed, self._stream, self._first + index, int(self._series[index]))

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        # The native environment hangs if one of its threads gets an action that does not exist.
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be {self.num_envs} integers, not {actions.dtype} {actions.shape}")
        if actions.min() < 0 or actions.max() >= self.num_actions:
            raise ValueError(f"actions must be in [0, {self.num_actions}), not {actions}")
        return actions.astype(np.int32, copy=False)

    def _finished(self, ended: np.ndarray) -> tuple[Episode, ...]:
        return tuple(
            Episode(
                env_index=index,
                number=int(self._numbers[index]),
                seed=int(self._seeds[index]),
                episode_return=float(self._returns[index]),
                length=int(self._lengths[index]),
                # as in published budgets: steps times frame skip, without the no-ops of the reset
                frames=int(self._lengths[index]) * self.frames_per_step,
            )
            for index in np.flatnonzero(ended).tolist()
        )

    def _start_next(self, ended: np.ndarray, *, seeded: np.ndarray) -> np.ndarray:
        self._numbers[ended] += 1
        self._log.restart(seeded)
        self._series[seeded] = self._numbers[seeded]
        for index in np.flatnonzero(seeded).tolist():
            self._seeds[index] = self._series_seed(index)
        return self._start(ended, seeded=seeded)

    def _start(self, due: np.ndarray, *, seeded: np.ndarray) -> np.ndarray:
        """Start an episode in the environments `due` [B] bool; those also in `seeded` [B] bool take their seeds."""
        self._returns[due] = 0.0
        self._lengths[due] = 0
        if seeded.any():
            observations, self._lives = self._simulator.reset(seeded, self._seeds[seeded])
        if (due & ~seeded).any():
            observations, self._lives = self._simulator.reset(due & ~seeded, None)
        return observations

    def _replay(self) -> np.ndarray:
        """Replay the log. All series end at its last row; an environment idles until its own series starts."""
        rows, starts = self._log.aligned()
        ended = np.ones(self.num_envs, np.bool_)  # a simulator's first reset is of all environments, with seeds
        seeded = ended
        for t in range(len(rows) + 1):
            if ended.any() or seeded.any():
                self._numbers[ended & ~seeded & (starts < t)] += 1
                observations = self._start(ended | seeded, seeded=seeded)
            if t == len(rows):
                break
            outcome = self._simulator.step(rows[t].astype(np.int32))
            observations, self._lives = outcome.observations, outcome.lives
            self._returns += outcome.scores
            self._lengths += 1
            ended, seeded = outcome.terminated | outcome.truncated, starts == t + 1
        return observations


def read_state(state: Mapping[str, Any], num_envs: int, num_actions: int, name: str) -> dict[str, np.ndarray]:
    """A checked copy of the result of `VecEnv.state`, for `num_envs` environments of this name.

    Raises:
        UserError: if it belongs to other environments, or contradicts itself.
    """
    if set(state) != set(_STATE):
        _misfit(f"it holds {', '.join(sorted(state)) or 'nothing'}, not {', '.join(sorted(_STATE))}")
    arrays = {key: np.asarray(state[key]) for key in _STATE}
    numbers, _, series, lengths, actions, _ = arrays.values()
    for key, array in arrays.items():
        shape = actions.shape[:1] if key == "series_actions" else (num_envs,)
        if array.shape != shape or array.dtype.kind not in _STATE[key]:
            _misfit(f"{key} is {array.dtype} of shape {array.shape}, which is not of {num_envs} environments")
    if (
        min(series.min(), lengths.min()) < 0
        or numbers.max() > _LAST_NUMBER
        or (numbers < series).any()
        or lengths.max() > len(actions)
        or int(lengths.max()) * num_envs > _LARGEST_LOG
        or lengths.sum() != len(actions)
    ):
        _misfit("its lengths, numbers and actions contradict each other")
    if (actions >= num_actions).any():
        _misfit(f"it holds the action {actions.max()}, and {name} has {num_actions}")
    integers = {key: arrays[key].astype(np.int64) for key in ("episode_numbers", "series_numbers", "series_lengths")}
    return {**arrays, **integers, "episode_returns": arrays["episode_returns"].astype(np.float64)}


def _digests(observations: np.ndarray) -> np.ndarray:
    """A hash of the bytes of each observation: [B] uint64."""
    hashes = [hashlib.blake2b(np.ascontiguousarray(x).tobytes(), digest_size=8).digest() for x in observations]
    return np.array([int.from_bytes(digest, "little") for digest in hashes], np.uint64)


def _misfit(what: str) -> NoReturn:
    raise UserError(f"The checkpoint does not fit this environment: {what}.")
