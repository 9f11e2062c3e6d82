"""The replay: the latest transitions of all environments, to learn from them many times.

A ring of rows, one for each step of the B environments. Every screen is stored once; the stacks of screens that the
network sees are made when transitions are sampled, and never reach across the end of an episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import cv2
import numpy as np

from a2c.config import EnvConfig
from a2c.data.collector import aligned
from a2c.data.rollout import Rollout
from a2c.data.sum_tree import SumTree
from a2c.execution.memory import check_replay_memory
from a2c.games import atari_game

FACTS = ("actions", "rewards", "terminated", "truncated", "life_lost")  # as in a rollout, [rows, B]
ROWS = ("frames", "ages", *FACTS)
SMALLEST_ERROR = 1e-6  # added to every error, so that no transition is lost


class Samples(NamedTuple):
    """N transitions as they happened, each with the n steps that begin with it; what follows an end is another episode.

    `next_observations` are those after n steps, or after the step that ended the episode: at a time limit the true last
    one; after game over the first of the next episode, which must not be used.
    """

    observations: np.ndarray  # [N, *obs]
    actions: np.ndarray  # [N] int32
    rewards: np.ndarray  # [n, N] float32, not clipped
    terminated: np.ndarray  # [n, N] bool
    truncated: np.ndarray  # [n, N] bool
    life_lost: np.ndarray  # [n, N] bool
    next_observations: np.ndarray  # [N, *obs]
    places: np.ndarray  # [N] int64: where they lie, see `Replay.reprioritise`
    probabilities: np.ndarray  # [N] float64: of each to be drawn


class Replay:
    """The latest `capacity` transitions of B environments that can be sampled with all their n steps.

    Arrays that `sample` returned are overwritten by the next call.

    Args:
        space: Gymnasium Box of one observation.
        capacity: in transitions, cut to whole rows of B.
        num_envs: B.
        n_step: n.
        stack: screens of an observation [H, W, stack], newest last, black before the first of an episode; 1: none.
        alpha: exponent of the priorities (Schaul et al. 2016, eq. 1); None: all transitions are drawn equally often.

    Attributes:
        total: rows added so far; they are numbered from 0.

    Raises:
        UserError: if it does not fit the machine's memory.
    """

    def __init__(
        self, space: Any, *, capacity: int, num_envs: int, n_step: int = 1, stack: int = 1, alpha: float | None = None
    ) -> None:
        self.rows, self.num_envs = capacity // num_envs, num_envs
        self.n_step, self.stack, self.alpha = n_step, stack, alpha
        self.total = 0
        self.shape, self.dtype = tuple(space.shape), np.dtype(space.dtype)
        frame = self.shape if stack == 1 else self.shape[:-1]
        self.slots = self.rows + stack - 1 + n_step  # older screens and later steps are kept too
        check_replay_memory(capacity, self.slots * num_envs, space, stack)
        ring = self.slots, num_envs
        self.frames = np.zeros((*ring, *frame), self.dtype)  # row t: the newest screen of obs_t, or all of it
        self.ages = np.zeros(ring, np.uint8)  # steps since the episode's first observation, at most stack - 1
        self.actions = np.zeros(ring, np.int32)
        self.rewards = np.zeros(ring, np.float32)
        self.terminated, self.truncated, self.life_lost = np.zeros((3, *ring), np.bool_)
        self._last: dict[int, np.ndarray] = {}  # the newest screen of the true last observation, by truncated place
        self._tree = None if alpha is None else SumTree(ring[0] * num_envs)
        self._highest = 1.0  # of all priorities so far
        self._buffers: dict[str, np.ndarray] = {}  # of the samples

    # --- adding -------------------------------------------------------------------------------------------------------

    def add(self, rollout: Rollout) -> None:
        """Add the T rows of a rollout, which begins where the one before ended; T is at most `rows`."""
        length, oldest = len(rollout.actions), self.oldest
        slots = np.arange(self.total, self.total + length + 1) % self.slots  # the last: of the observation after them
        self._drop_last(slots[:-1])
        self.frames[slots] = self._newest(rollout.observations)
        ended = rollout.terminated | rollout.truncated
        for t in range(length):
            self.ages[slots[t + 1]] = np.where(ended[t], 0, np.minimum(self.ages[slots[t]] + 1, self.stack - 1))
        for name in FACTS:
            getattr(self, name)[slots[:-1]] = getattr(rollout, name)
        self._keep_last(slots[:-1], self._newest(rollout.last_observations))
        self.total += length
        if self._tree is not None:
            self._weigh(np.arange(oldest, self.oldest), 0.0)
            fresh = np.arange(max(0, self.total - length - self.n_step + 1), max(0, self.total - self.n_step + 1))
            self._weigh(fresh, self._highest)

    @property
    def size(self) -> int:
        """Transitions that can be sampled: all their n steps are there."""
        return max(0, min(self.total - self.n_step + 1, self.rows)) * self.num_envs

    @property
    def oldest(self) -> int:
        """The oldest row that can be sampled, as soon as one can."""
        return max(0, self.total - self.n_step + 1 - self.rows)

    @property
    def first(self) -> int:
        """The oldest row that is needed, for its screen."""
        return max(0, self.oldest - self.stack + 1)

    def _newest(self, observations: np.ndarray) -> np.ndarray:
        """What is stored of observations [..., *obs]."""
        return observations if self.stack == 1 else observations[..., -1]

    def _drop_last(self, slots: np.ndarray) -> None:
        """Forget the last observations of the rows in `slots`."""
        for t, b in np.argwhere(self.truncated[slots]):
            self._last.pop(int(slots[t]) * self.num_envs + int(b), None)

    def _keep_last(self, slots: np.ndarray, newest: np.ndarray) -> None:
        """Keep what is stored of last observations: [K, ...], in order of (row, environment) of the truncated rows."""
        for (t, b), frame in zip(np.argwhere(self.truncated[slots]), newest, strict=True):
            self._last[int(slots[t]) * self.num_envs + int(b)] = frame.copy()

    # --- saving -------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """All but the rows; see `Memory` in `a2c.algorithms.algorithm`, which this and the next three methods serve."""
        after = self.total % self.slots  # of the observation after the last row
        state = {"total": np.array(self.total), "frames": self.frames[after].copy(), "ages": self.ages[after].copy()}
        if self._tree is not None:
            state |= {"priorities": self._tree.weights.copy(), "highest": np.array(self._highest)}
        return state

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore what `state` returned."""
        total = int(state["total"])
        if not 0 <= total < 2**62:
            raise ValueError(f"total={total}")
        self.total = total
        for name in ROWS[:2]:
            ring = getattr(self, name)
            ring[total % self.slots] = _fitting(name, state[name], ring[0])
        if self._tree is not None:
            priorities = _fitting("priorities", state["priorities"], self._tree.weights)
            if not (np.isfinite(priorities).all() and priorities.min() >= 0 and np.isfinite(state["highest"])):
                raise ValueError("priorities that are not finite")
            self._tree.set(np.arange(len(priorities)), priorities)
            self._highest = float(state["highest"])

    def read(self, first: int, end: int) -> dict[str, np.ndarray]:
        """The rows from `first` to before `end`."""
        slots = np.arange(first, end) % self.slots
        places = slots[:, None] * self.num_envs + np.arange(self.num_envs)
        last = [self._last[int(place)] for place in places[self.truncated[slots]]]
        rows = {name: getattr(self, name)[slots] for name in ROWS}
        return {**rows, "last": np.array(last, self.dtype).reshape(len(last), *self.frames.shape[2:])}

    def write(self, first: int, end: int, rows: Mapping[str, np.ndarray]) -> None:
        """Write what `read` returned; rows that are no longer needed are left out."""
        needed = max(first, min(self.first, end))
        slots = np.arange(needed, end) % self.slots
        self._drop_last(slots)
        skipped = int(rows["truncated"][: needed - first].sum())
        for name in ROWS:
            ring = getattr(self, name)
            ring[slots] = _fitting(name, rows[name][needed - first :], ring[: len(slots)])
        like = np.empty((int(self.truncated[slots].sum()), *self.frames.shape[2:]), self.dtype)
        self._keep_last(slots, _fitting("last", rows["last"][skipped:], like))

    @property
    def row_bytes(self) -> int:
        """Size of a row."""
        return sum(getattr(self, name)[0].nbytes for name in ROWS)

    # --- sampling -----------------------------------------------------------------------------------------------------

    def sample(self, number: int, rng: np.random.Generator) -> Samples:
        """Draw `number` transitions; `size` must be above 0."""
        rows, envs, probabilities = self._draw(number, rng)
        window = self._places(rows + np.arange(self.n_step)[:, None], envs)
        facts = {name: getattr(self, name).reshape(-1)[window] for name in FACTS}
        ended = facts["terminated"] | facts["truncated"]
        steps = np.where(ended.any(axis=0), ended.argmax(axis=0) + 1, self.n_step)
        final = window[steps - 1, np.arange(number)]
        following = self._observations("next", rows + steps, envs)
        for i in np.flatnonzero(self.truncated.reshape(-1)[final]):
            following[i] = self._last_observation(int(final[i]), following[i])
        return Samples(
            observations=self._observations("first", rows, envs),
            actions=facts["actions"][0],
            rewards=facts["rewards"],
            terminated=facts["terminated"],
            truncated=facts["truncated"],
            life_lost=facts["life_lost"],
            next_observations=following,
            places=window[0],
            probabilities=probabilities,
        )

    def reprioritise(self, places: np.ndarray, errors: np.ndarray) -> None:
        """Set the priorities of transitions at `places` [N] from absolute errors [N] (Schaul et al. 2016, 3.3)."""
        assert self._tree is not None and self.alpha is not None
        priorities = (errors.astype(np.float64) + SMALLEST_ERROR) ** self.alpha
        self._highest = max(self._highest, float(priorities.max()))
        self._tree.set(places, priorities)

    def _draw(self, number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, environments and probabilities [N].

        With priorities, their sum is cut into N equal parts, and one is drawn from each.
        """
        if self._tree is None:
            rows, envs = np.divmod(rng.integers(self.size, size=number), self.num_envs)
            return self.oldest + rows, envs, np.full(number, 1 / self.size)
        total = self._tree.total
        places = self._tree.find((np.arange(number) + rng.random(number)) * (total / number))
        slots, envs = np.divmod(places, self.num_envs)
        return self.oldest + (slots - self.oldest) % self.slots, envs, self._tree.weights[places] / total

    def _weigh(self, rows: np.ndarray, weight: float) -> None:
        """Set the priority of all transitions of some rows."""
        assert self._tree is not None
        self._tree.set(self._places(rows[:, None], np.arange(self.num_envs)).reshape(-1), weight)

    def _places(self, rows: np.ndarray, envs: np.ndarray) -> np.ndarray:
        """The positions in the arrays, flattened over slots and environments."""
        places: np.ndarray = rows % self.slots * self.num_envs + envs
        return places

    def _observations(self, name: str, rows: np.ndarray, envs: np.ndarray) -> np.ndarray:
        """The observations [N, *obs] of N rows, in an array that is used again for the same name and N."""
        found = self._buffer(name, (len(rows), *self.shape))
        frames = self.frames.reshape(-1, *self.frames.shape[2:])
        if self.stack == 1:
            return np.take(frames, self._places(rows, envs), axis=0, out=found, mode="clip")  # the fastest mode
        back = np.arange(self.stack - 1, -1, -1)[:, None]
        screens = self._buffer("screens", (self.stack, len(rows), *frames.shape[1:]))
        np.take(frames, self._places(rows - back, envs), axis=0, out=screens, mode="clip")
        screens[back > self.ages.reshape(-1)[self._places(rows, envs)]] = 0
        flat = screens.reshape(self.stack, len(rows), -1)
        cv2.merge(list(flat), dst=found.reshape(len(rows), -1, self.stack))  # 20 times faster than NumPy's transpose
        return found

    def _last_observation(self, place: int, following: np.ndarray) -> np.ndarray:
        """The true last observation [*obs] of the row at a truncated place, which is not the one that follows."""
        if self.stack == 1:
            return self._last[place]
        slot, b = divmod(place, self.num_envs)
        last = np.zeros_like(following)
        last[..., -1] = self._last[place]
        for back in range(min(int(self.ages[slot, b]) + 1, self.stack - 1)):
            last[..., -2 - back] = self.frames[(slot - back) % self.slots, b]
        return last

    def _buffer(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if (found := self._buffers.get(name)) is None or found.shape != shape:
            found = self._buffers[name] = aligned(shape, self.dtype)
        return found


def _fitting(name: str, array: np.ndarray, like: np.ndarray) -> np.ndarray:
    if array.shape != like.shape or array.dtype != like.dtype:
        raise ValueError(f"{name} is {array.dtype} {array.shape}, and should be {like.dtype} {like.shape}")
    return array


def stack_of(config: EnvConfig) -> int:
    """The screens of an observation that are stored one by one; 1: an observation is stored whole."""
    return config.frame_stack if atari_game(config.id) else 1


def replay_of(config: EnvConfig, space: Any, *, capacity: int, n_step: int = 1, alpha: float | None = None) -> Replay:
    """An empty replay for the environments of a run; the other arguments, and errors, are those of `Replay`."""
    stack = stack_of(config)
    return Replay(space, capacity=capacity, num_envs=config.num_envs, n_step=n_step, stack=stack, alpha=alpha)
