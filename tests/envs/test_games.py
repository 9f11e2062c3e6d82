"""Names, action counts and reference scores of the Atari games."""

from __future__ import annotations

import ale_py
import gymnasium as gym
import pytest
from ale_py import roms

from a2c.envs import atari_game, game_names, games, human_normalized


@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        ("Pong", "Pong"),
        ("pong", "Pong"),
        ("ALE/Pong-v5", "Pong"),
        ("Pong-v4", "Pong"),
        ("PongNoFrameskip-v4", "Pong"),
        ("ale_py:ALE/Pong-v5", "Pong"),
        ("PongDeterministic-v4", "Pong"),
        ("space_invaders", "SpaceInvaders"),
        ("SpaceInvaders", "SpaceInvaders"),
        ("ALE/SpaceInvaders-v5", "SpaceInvaders"),
        ("SpaceInvadersNoFrameskip-v0", "SpaceInvaders"),
    ],
)
def test_all_names_of_a_game_mean_the_same(env_id: str, name: str) -> None:
    game = atari_game(env_id)
    assert game is not None and game.name == name


@pytest.mark.parametrize(
    "env_id", ["Pnog", "CartPole-v1", "Pong-ramNoFrameskip-v4", "my_module:Pong-v5", "Pong-v9", "", "Catch"]
)
def test_what_is_no_game_is_none(env_id: str) -> None:
    assert atari_game(env_id) is None


def test_the_games_are_those_that_ale_py_registers() -> None:
    registered = {spec.id[4:-3]: spec.kwargs["game"] for spec in gym.registry.values() if spec.id.startswith("ALE/")}
    assert {game.name: game.rom for game in games()} == registered
    assert game_names() == sorted(registered)


@pytest.mark.parametrize(
    "name", ["Pong", "Breakout", "Freeway", "SpaceInvaders", "MsPacman", "Seaquest", "Tetris", "Boxing"]
)
def test_action_counts_are_the_emulators(name: str) -> None:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    game = atari_game(name)
    ale = ale_py.ALEInterface()
    ale.loadROM(roms.get_rom_path(game.rom))
    assert game.num_actions == len(ale.getMinimalActionSet())


def test_human_normalized_scores() -> None:
    pong, adventure = atari_game("Pong"), atari_game("Adventure")
    assert human_normalized(pong, -20.7) == 0.0
    assert human_normalized(pong, 14.6) == 1.0
    assert human_normalized(adventure, 0.0) is None
    assert sum(game.human is not None for game in games()) == 57
