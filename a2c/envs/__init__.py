"""Environments, all built by `make_vec_env`. Never imports TensorFlow; imports Gymnasium only if needed."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from a2c.config import EnvConfig, build_config
from a2c.envs.groups import Group, VecEnvGroups
from a2c.envs.vector import Simulator, VecEnv, episode_seed
from a2c.execution.machine import core_numbers
from a2c.games import atari_game

if TYPE_CHECKING:
    from a2c.envs.gymnasium import ScalarEnvs

__all__ = [
    "Group",
    "VecEnv",
    "VecEnvGroups",
    "action_names",
    "check_env",
    "clips_rewards",
    "episode_seed",
    "is_native",
    "make_env_groups",
    "make_filmed_env",
    "make_simulator",
    "make_vec_env",
    "share_of_group",
]


def make_vec_env(
    config: EnvConfig, *, seed: int, stream: str = "train", first: int = 0, core: int | None = None
) -> VecEnv:
    """Build the vector environment of a run.

    Args:
        config: which environment, and how many.
        seed: of the run, in [0, 2**63).
        stream: the use of the environments; streams of one seed share no episodes.
        first: number of the first environment, if other workers or groups have earlier ones.
        core: the core that emulates native Atari; None = any.

    Returns:
        The environments; start them with `reset` or `restore`.

    Raises:
        UserError: if there is no such environment, or it is of an unsupported kind.
    """
    game = atari_game(config.id)
    return VecEnv(
        make_simulator(config, core=core),
        name=game.name if game else config.id.rpartition(":")[2],
        seed=seed,
        stream=stream,
        first=first,
        reseed_after=config.reseed_after if game else 0,  # only Atari seeds are expensive
    )


def make_env_groups(config: EnvConfig, *, seed: int, first: int = 0, groups: int = 1) -> VecEnvGroups:
    """Build the environments of a training run in groups of equal size, each stepped in its own thread.

    The episodes are those of `make_vec_env`. If there are as many groups as cores, each group is pinned to one: its
    threads work in turn, and the system might put those of two groups on one core.

    Args:
        config: which environment, and how many in total.
        seed: of the run, in [0, 2**63).
        first: number of the first environment.
        groups: number of groups; it divides `config.num_envs`.

    Raises:
        UserError: as `make_vec_env`.
    """
    share, cores = share_of_group(config, groups)
    with ExitStack() as stack:  # if one cannot be made, those before it are closed
        made = [
            stack.enter_context(make_vec_env(share, seed=seed, first=first + index * share.num_envs, core=core))
            for index, core in enumerate(cores)
        ]
        stack.pop_all()
    return VecEnvGroups([Group(envs, core) for envs, core in zip(made, cores, strict=True)])


def share_of_group(config: EnvConfig, groups: int) -> tuple[EnvConfig, list[int | None]]:
    """The environments of one of `groups` equal groups, and the core of each group, None = any."""
    if groups == 1:
        return config, [None]
    numbers = core_numbers()
    cores: list[int | None] = [*numbers] if len(numbers) == groups else [None] * groups
    return config.model_copy(update={"num_envs": config.num_envs // groups, "threads": 1}), cores


def check_env(env_id: str) -> None:
    """Check that an environment exists and can be trained on.

    `module:Id-v0` of a user is not checked: the module is code that may need what training sets up first.

    Raises:
        UserError: if not.
    """
    config = build_config({"env": {"id": env_id, "num_envs": 1}}, where="--env").env
    if atari_game(env_id) is None and ":" not in env_id.removeprefix("ale_py:"):
        from a2c.envs.gymnasium import registered_envs

        registered_envs(config).close()


def is_native(config: EnvConfig) -> bool:
    """Whether C++ threads emulate the environment, while Python is free for other work."""
    return config.backend == "native" and atari_game(config.id) is not None


def clips_rewards(config: EnvConfig) -> bool:
    """Whether the loss sees only the sign of rewards."""
    choice = config.reward_clipping
    return choice == "sign" or (choice == "auto" and atari_game(config.id) is not None)


def make_simulator(config: EnvConfig, *, core: int | None = None) -> Simulator:
    """Build the bare environments, without the episode book-keeping that `make_vec_env` adds.

    Args:
        config: which environment, and how many.
        core: as for `make_vec_env`.

    Raises:
        UserError: as `make_vec_env`.
    """
    game = atari_game(config.id)
    if game is None or config.backend == "wrappers":
        return _scalar_envs(config)
    from a2c.envs.atari import NativeAtari  # here: shell completion does not wait for it

    return NativeAtari(config, game, core=core)


def _scalar_envs(config: EnvConfig, *, filmed: bool = False) -> ScalarEnvs:
    """Gymnasium's environments, stepped one by one."""
    from a2c.envs.gymnasium import atari_envs, registered_envs  # here for the same reason

    game = atari_game(config.id)
    return registered_envs(config, filmed=filmed) if game is None else atari_envs(config, game, filmed=filmed)


def action_names(config: EnvConfig) -> list[str]:
    """The names of an environment's actions, in order.

    Raises:
        UserError: as `make_vec_env`.
    """
    with closing(_scalar_envs(config.model_copy(update={"num_envs": 1}))) as envs:
        return envs.action_names


def make_filmed_env(config: EnvConfig) -> ScalarEnvs:
    """One environment that records pictures; it plays exactly the episodes of `make_simulator`'s.

    The native environment cannot render, so Atari games use the wrapper stack.

    Raises:
        UserError: as `make_vec_env`, and if the environment has no pictures.
    """
    return _scalar_envs(config.model_copy(update={"num_envs": 1}), filmed=True)
