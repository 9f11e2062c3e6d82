"""Evaluation: plays whole games and returns their raw scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2c.algorithms.policy import Policy
from a2c.config import Config, UserError, shown
from a2c.data.rollout import Episode
from a2c.envs import VecEnv, make_vec_env
from a2c.evaluation.scores import PROTOCOLS, mean_interval, noops, protocol_name, references, wrappers
from a2c.execution.machine import versions
from a2c.execution.runtime import parts_of, setup, stream_seed
from a2c.games import atari_game, human_normalized, published_a2c
from a2c.run.checkpoint import Saved, restored_policy
from a2c.run.files import write_result
from a2c.run.logs import finite
from a2c.run.lookup import trusted_checkpoint

MAX_ENVS = 8  # games played in parallel; part of the protocol, since it determines each game's seed
DEFAULT_EPISODES = 20


class PlayedGame(NamedTuple):
    """One whole game with its seed and its actions, enough to replay it."""

    episode: Episode
    actions: np.ndarray  # [episode.length] int32


@dataclass(frozen=True)
class EvalResult:
    """The scores of whole games, with the protocol and all that is needed to interpret them."""

    env: str
    checkpoint: str
    env_steps: int  # of training
    seed: int
    policy: str  # how it chose: "greedy", "sampled", "epsilon-greedy (0.01)"
    episodes: int
    mean: float
    interval: tuple[float, float] | None  # of the mean, 95 % bootstrap over games; None for fewer than 5 games
    standard_error: float | None
    median: float
    minimum: float
    maximum: float
    human_normalized: float | None  # (mean - random) / (human - random), None if the game has no such scores
    published: tuple[dict[str, Any], ...]  # A2C scores of others, only with the same protocol and policy
    returns: tuple[float, ...]  # raw, undiscounted, in the order of `seeds`
    lengths: tuple[int, ...]  # agent steps
    seeds: tuple[int, ...]  # of each game
    protocol: dict[str, Any]
    versions: dict[str, str]


def write_results(results: EvalResult | Sequence[EvalResult], path: Path) -> None:
    """Write a result as a JSON object, or several as a list; all of the file or nothing.

    Raises:
        UserError: if the file cannot be written.
    """
    values = asdict(results) if isinstance(results, EvalResult) else [asdict(result) for result in results]
    write_result(path, json.dumps(finite(values), indent=2) + "\n")


def evaluate(
    path: str | Path,
    *,
    episodes: int | None = None,
    greedy: bool | None = None,
    seed: int | None = None,
    env_id: str | None = None,
    protocol: str | None = None,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    on_step: Callable[[], None] = lambda: None,
    warn: Callable[[str], None] = lambda text: None,
) -> EvalResult:
    """Play whole games with the agent of a checkpoint.

    Args:
        path: a checkpoint file, or a run folder (its latest good checkpoint).
        episodes: number of games; each environment's share is fixed in advance, so that short games are
            not over-represented. Default: the run's own, else 20.
        greedy: take the most probable action instead of a draw. Default: the run's own.
        seed: of games and draws. Default: the run's own, which reproduces the run's final evaluation.
        env_id: the expected environment; required if it is a `module:Id`, since its code is run.
        protocol: "deepmind" (no-ops) or "machado" (sticky actions), for Atari games. Default: as in training.
        on_episode: called with each game that counts, when it ends.
        on_step: called before each step.
        warn: called with a sentence for each damaged checkpoint that was skipped, and if TensorFlow already has another
            number of threads.

    Raises:
        UserError: if there is no such checkpoint, it does not fit, or a score is NaN or infinite.
        CrashError: if the environment raises.
    """
    saved, config = _load(path, env_id, protocol, warn)
    setup(config.runtime, parts=parts_of(config), warn=warn)
    episodes = episodes or config.evaluation.episodes or DEFAULT_EPISODES
    greedy = config.evaluation.greedy if greedy is None else greedy
    seed = config.seed if seed is None else seed
    with evaluation_envs(config, episodes, seed) as envs:
        policy = restored_policy(saved, config, envs.observation_space, envs.num_actions)
        played = play(
            policy,
            envs,
            episodes,
            greedy=greedy,
            seed=seed,
            on_episode=on_episode,
            on_step=on_step,
        )
    check_scores(played, config.env.id)
    return _result(config, str(path), saved.env_steps, played, policy=way(policy, greedy=greedy), seed=seed)


def games_to_play(path: str | Path, *, env_id: str | None = None, protocol: str | None = None) -> int:
    """The number of games that `evaluate` plays by default; raises its errors of checkpoint and protocol."""
    _, config = _load(path, env_id, protocol, lambda text: None)
    return config.evaluation.episodes or DEFAULT_EPISODES


def evaluate_policy(
    policy: Policy,
    config: Config,
    checkpoint: str,
    env_steps: int,
    *,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    on_step: Callable[[], None] = lambda: None,
) -> tuple[EvalResult, list[PlayedGame]]:
    """Run the evaluation of `config.evaluation` with the current policy; the other arguments as for `play`."""
    episodes, greedy = config.evaluation.episodes, config.evaluation.greedy
    with evaluation_envs(config, episodes, config.seed) as envs:
        played = play(policy, envs, episodes, greedy=greedy, seed=config.seed, on_episode=on_episode, on_step=on_step)
    acts = way(policy, greedy=greedy)
    return _result(config, checkpoint, env_steps, played, policy=acts, seed=config.seed), played


def play(
    policy: Policy,
    envs: VecEnv,
    episodes: int,
    *,
    greedy: bool,
    seed: int,
    on_episode: Callable[[Episode], None] = lambda episode: None,
    on_step: Callable[[], None] = lambda: None,
) -> list[PlayedGame]:
    """Play `episodes` whole games: the first ceil or floor(episodes / B) of every environment.

    Args:
        policy: the player.
        envs: new environments, not yet reset.
        episodes: number of games.
        greedy: take the most probable action instead of a draw.
        seed: of the draws.
        on_episode: called with each game that counts, when it ends.
        on_step: called before each step; may raise to stop the evaluation.

    Returns:
        The games by environment, then by number: a function of the weights and the seeds only.
    """
    b = envs.num_envs
    quota = np.array([episodes // b + (i < episodes % b) for i in range(b)])
    action_seed = stream_seed(seed, "evaluation actions")
    played: list[PlayedGame] = []
    running: list[list[int]] = [[] for _ in range(b)]  # the actions of the running games
    observations = envs.reset()
    draws = 0
    while len(played) < episodes:
        on_step()
        if greedy:
            actions = policy.act_greedily(observations)
        else:
            actions = policy.act(observations, np.array([action_seed, draws], np.int64))
        draws += 1
        for game, action in zip(running, actions.tolist(), strict=True):
            game.append(action)
        step = envs.step(actions)
        observations = step.observations
        for episode in step.episodes:
            if episode.number < quota[episode.env_index]:
                played.append(PlayedGame(episode, np.array(running[episode.env_index], np.int32)))
                on_episode(episode)
            running[episode.env_index] = []
    return sorted(played, key=lambda game: (game.episode.env_index, game.episode.number))


def check_scores(played: Sequence[PlayedGame], env_id: str) -> None:
    """Check that all scores are finite.

    Raises:
        UserError: if not.
    """
    if not all(np.isfinite(game.episode.episode_return) for game in played):
        raise UserError(f"Scores of {env_id} are NaN or infinite, as its rewards are; mend the environment.")


def way(policy: Policy, *, greedy: bool) -> str:
    """How a policy chooses its actions, in a word for people."""
    return "greedy" if greedy else policy.acts


def _load(
    path: str | Path, env_id: str | None, protocol: str | None, warn: Callable[[str], None]
) -> tuple[Saved, Config]:
    """A checkpoint, and its configuration for the evaluation."""
    saved = trusted_checkpoint(Path(path), env_id, warn)
    return saved, _under(protocol, saved.config)


def _under(protocol: str | None, config: Config) -> Config:
    """The configuration with the environment settings of a protocol."""
    if protocol is None:
        return config
    if protocol not in PROTOCOLS:
        raise UserError(f"There is no protocol {shown(protocol)}; allowed are {' and '.join(PROTOCOLS)}.")
    if atari_game(config.env.id) is None:
        raise UserError(f"The protocol {protocol} is one of Atari games, and the checkpoint is of {config.env.id}.")
    return config.model_copy(update={"env": config.env.model_copy(update=dict(PROTOCOLS[protocol]))})


def evaluation_envs(config: Config, episodes: int, seed: int) -> VecEnv:
    """The environments for `episodes` games."""
    # every game has its own seed, so that it can be replayed alone
    env = config.env.model_copy(update={"num_envs": min(episodes, MAX_ENVS), "reseed_after": 0})
    return make_vec_env(env, seed=seed, stream="evaluation")


def _result(
    config: Config, checkpoint: str, env_steps: int, played: list[PlayedGame], *, policy: str, seed: int
) -> EvalResult:
    episodes = [game.episode for game in played]
    scores = np.array([episode.episode_return for episode in episodes])
    game = atari_game(config.env.id)
    n = len(scores)
    return EvalResult(
        env=config.env.id,
        checkpoint=checkpoint,
        env_steps=env_steps,
        seed=seed,
        policy=policy,
        episodes=n,
        mean=float(scores.mean()),
        interval=mean_interval(scores),
        standard_error=float(scores.std(ddof=1) / np.sqrt(n)) if n > 1 else None,
        median=float(np.median(scores)),
        minimum=float(scores.min()),
        maximum=float(scores.max()),
        published=references(published_a2c(game), protocol_name(config.env), policy) if game else (),
        human_normalized=human_normalized(game, float(scores.mean())) if game else None,
        returns=tuple(episode.episode_return for episode in episodes),
        lengths=tuple(episode.length for episode in episodes),
        seeds=tuple(episode.seed for episode in episodes),
        protocol=_protocol(config, n, is_atari=game is not None),
        versions=versions(),
    )


def _protocol(config: Config, episodes: int, *, is_atari: bool) -> dict[str, Any]:
    protocol: dict[str, Any] = {
        "episode": "whole game, from reset to game over or the time limit",
        "score": "undiscounted sum of raw rewards",
        "episodes_per_env": f"fixed in advance over {min(episodes, MAX_ENVS)} environments",
        **wrappers(config.env),
    }
    if is_atari:
        env = config.env
        protocol |= {
            "name": protocol_name(env) or "its own",
            "backend": env.backend,
            "sticky_action_probability": env.sticky_action_probability,
            "action_set": "full (18)" if env.full_action_space else "minimal",
            "frame_skip": env.frame_skip,
            "frame_stack": env.frame_stack,
            "screen_size": env.screen_size,
            "noops": noops(env),
            "fire_reset": env.fire_reset,
            "fire_on_life_loss": env.fire_on_life_loss,
            "max_frames_per_episode": env.max_frames_per_episode,
            "trained_with_life_loss_cut": env.cut_on_life_loss,
        }
    return protocol
