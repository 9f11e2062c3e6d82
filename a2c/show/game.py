"""Replay one game from its seed and actions: observations, actions, rewards, and a picture of every frame.

T = length of the game, A = num_actions, G = `saliency.GRID`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from a2c.algorithms.objective import Objective
from a2c.algorithms.on_policy import outcomes
from a2c.algorithms.policy import Policy, Shown
from a2c.algorithms.returns import n_step_returns
from a2c.config import Config, UserError
from a2c.data.rollout import Rollout
from a2c.envs.gymnasium import ScalarEnvs
from a2c.evaluation.evaluate import PlayedGame
from a2c.show.saliency import effects

Choice = Literal["best", "worst", "median"]
Saliency = Literal["value", "policy"]


class Step(NamedTuple):
    """One agent step of a game."""

    observation: np.ndarray  # [*obs]: what the network acted on
    action: int
    reward: float  # as it is learned from, before its sign is taken
    score: float  # sum of the raw rewards, this one included
    lives: int  # after the step; 0 if the environment has none
    life_lost: bool  # and the game continues
    terminated: bool
    truncated: bool
    next_observation: np.ndarray  # [*obs]
    pictures: list[np.ndarray]  # [H, W, 3] uint8 each: after every frame of the step, the skipped ones too


class Thoughts(NamedTuple):
    """The network's outputs at each step of a game, and the returns that followed."""

    actions: np.ndarray  # [T, A] float32: probabilities or Q-values, as `shows` says
    shows: Shown
    values: np.ndarray  # [T] float32
    returns: np.ndarray  # [T] float32: discounted, of the rewards as the loss sees them; what the values estimate
    effects: np.ndarray | None  # [T, G, G] float32: see `saliency.effects`


def choose(played: Sequence[PlayedGame], choice: Choice) -> PlayedGame:
    """The game with the best, worst or median score; the lower median of an even number, the first of equals."""
    ranked = sorted(played, key=lambda game: game.episode.episode_return)
    if choice == "best":
        return max(played, key=lambda game: game.episode.episode_return)
    return ranked[0 if choice == "worst" else (len(ranked) - 1) // 2]


def chosen_of(choice: str, number: int) -> str:
    """The chosen game of `number`, in words."""
    return f"the {choice} of {number} games" if number > 1 else "the only game"


def replay(env: ScalarEnvs, game: PlayedGame) -> Iterator[Step]:
    """Replay a game.

    Args:
        env: from `envs.make_filmed_env`.
        game: that was played in such an environment, or in the native one.

    Raises:
        UserError: if the game ends at another step or with another score, since it is not a function of its seed
            and actions.
    """
    observations, lives = env.reset(np.ones(1, np.bool_), np.array([game.episode.seed]))
    env.take_pictures()  # drops those before the first frame
    score = 0.0
    for t, action in enumerate(game.actions.tolist(), start=1):
        outcome = env.step(np.array([action], np.int32))
        score += float(outcome.scores[0])
        ended = bool(outcome.terminated[0] | outcome.truncated[0])
        _check_same(game, t, score, ended=ended)
        yield Step(
            observation=observations[0],
            action=action,
            reward=float(outcome.rewards[0]),
            score=score,
            lives=int(outcome.lives[0]),
            life_lost=bool(outcome.lives[0] < lives[0]) and not ended,
            terminated=bool(outcome.terminated[0]),
            truncated=bool(outcome.truncated[0]),
            next_observation=outcome.observations[0],
            pictures=env.take_pictures(),
        )
        observations, lives = outcome.observations, outcome.lives


def think(policy: Policy, config: Config, steps: Iterable[Step], *, saliency: Saliency | None = None) -> Thoughts:
    """Run the network on every step of a game.

    Args:
        policy: whose network it is.
        config: of its training.
        steps: of the whole game, as from `replay`.
        saliency: the number whose effects are computed: the value, or the log-probability or Q-value of the action
            taken. It needs observations that are images.

    Raises:
        UserError: if a number is not finite.
    """
    looks, values, maps = [], [], []
    facts: list[tuple[float, bool, bool, bool]] = []  # not the steps themselves: their pictures take gigabytes
    last: list[np.ndarray] = []
    for step in steps:
        look, value = policy.look(step.observation[None])
        looks.append(look[0])
        values.append(value[0])
        if saliency:
            maps.append(effects(_observed(policy.look, saliency, step.action), step.observation))
        facts.append((step.reward, step.terminated, step.truncated, step.life_lost))
        last += [step.next_observation] if step.truncated else []
    found = outcomes(
        _game(facts, last),
        lambda observations: policy.look(observations)[1],
        Objective.of(config),
    )
    returns = n_step_returns(*found, np.zeros(1, np.float32))  # the last step ends the game, so no value follows it
    if not (np.isfinite(looks).all() and np.isfinite(values).all() and np.isfinite(returns).all()):
        raise UserError(f"The network or the rewards of {config.env.id} are not finite, so that nothing can be drawn.")
    return Thoughts(
        actions=np.exp(looks) if policy.shows == "probabilities" else np.array(looks),
        shows=policy.shows,
        values=np.array(values),
        returns=returns.numpy()[:, 0],
        effects=np.array(maps) if saliency else None,
    )


def _game(facts: Sequence[tuple[float, bool, bool, bool]], last: Sequence[np.ndarray]) -> Rollout:
    """A whole game as a rollout of one environment, without observations and actions."""
    rewards, terminated, truncated, life_lost = (np.array(column)[:, None] for column in zip(*facts, strict=True))
    nothing = np.empty(0)
    return Rollout(nothing, nothing, rewards.astype(np.float32), terminated, truncated, life_lost, np.array(last), {})


def _observed(look: Callable[..., Any], saliency: Saliency, action: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function from observations [N, *obs] to the number whose saliency is computed, [N]."""
    if saliency == "value":
        return lambda observations: look(observations)[1]
    return lambda observations: look(observations)[0][:, action]


def _check_same(game: PlayedGame, t: int, score: float, *, ended: bool) -> None:
    length, wanted = len(game.actions), game.episode.episode_return
    if ended != (t == length) or (ended and score != wanted):
        raise UserError(
            f"The game of seed {game.episode.seed} goes another way when it is played again (step {t} of {length}, "
            f"score {score:g}, {wanted:g} then): the environment is not a function of its seed and actions, so that "
            "there is nothing to show."
        )
