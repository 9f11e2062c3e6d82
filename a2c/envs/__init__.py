"""Environments: `make_vec_env` builds every one of them. Never imports TensorFlow, and Gymnasium only when needed."""

from __future__ import annotations

from contextlib import closing

from a2c.config import EnvConfig
from a2c.envs.games import Game, atari_game, game_names, games, human_normalized, published_a2c
from a2c.envs.vector import Simulator, VecEnv, episode_seed

__all__ = [
    "Game",
    "VecEnv",
    "action_meanings",
    "atari_game",
    "episode_seed",
    "game_names",
    "games",
    "human_normalized",
    "make_simulator",
    "make_vec_env",
    "published_a2c",
]


def make_vec_env(config: EnvConfig, *, seed: int, stream: str = "train") -> VecEnv:
    """Build the vector environment of a run.

    Args:
        config: which environment, and how many.
        seed: of the run, in [0, 2**63).
        stream: what the environments are for; streams of one seed share no episodes.

    Returns:
        The environments, to be started by `reset` or `restore`.

    Raises:
        UserError: if there is no such environment, or it is of a kind that A2C cannot play.
    """
    game = atari_game(config.id)
    return VecEnv(
        make_simulator(config),
        name=game.name if game else config.id.rpartition(":")[2],
        clips_rewards=config.reward_clipping == "sign" or (config.reward_clipping == "auto" and game is not None),
        seed=seed,
        stream=stream,
        reseed_after=config.reseed_after if game else 0,  # elsewhere seeds are cheap
    )


def make_simulator(config: EnvConfig) -> Simulator:
    """Build what `make_vec_env` puts its book-keeping of episodes around: the bare environments.

    Raises:
        UserError: as `make_vec_env`.
    """
    game = atari_game(config.id)
    # The backends are imported here: who only asks for names, as shell completion does, need not wait for them.
    if game is None:
        from a2c.envs.gymnasium import registered_envs

        return registered_envs(config)
    if config.backend == "wrappers":
        from a2c.envs.gymnasium import atari_envs

        return atari_envs(config, game)
    from a2c.envs.atari import NativeAtari

    return NativeAtari(config, game)


def action_meanings(config: EnvConfig) -> list[str] | None:
    """What each action of an environment is called, in order; None where it does not say.

    Raises:
        UserError: as `make_vec_env`.
    """
    from a2c.envs.gymnasium import atari_envs, registered_envs

    game, one = atari_game(config.id), config.model_copy(update={"num_envs": 1})
    with closing(registered_envs(one) if game is None else atari_envs(one, game)) as envs:
        return envs.action_meanings()
