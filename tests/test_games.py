"""Names, action counts and reference scores of the Atari games."""

from __future__ import annotations

import ale_py
import gymnasium as gym
import pytest
from ale_py import roms

from a2c.config import EnvConfig, UserError, build_config
from a2c.envs import check_env
from a2c.games import TOYS, atari_game, canonical_id, game_names, games, gymnasium_id, human_normalized


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
    "env_id",
    [
        "ALE/PongNoFrameskip-v5",
        "ALE/Pong-v4",
        "ale_py:PongNoFrameskip-v5",
        "Pong-v5",
        "pong-v4",
        "ALE/pong-v5",
        "Pong-RAM-v4",
        "Tetris-v4",
        "ALE/PongDeterministic-v4",
    ],
)
def test_what_gymnasium_does_not_know_is_refused(env_id: str) -> None:
    gym.register_envs(ale_py)
    with pytest.raises(gym.error.Error):
        gym.spec(env_id.removeprefix("ale_py:"))
    assert atari_game(env_id) is None
    with pytest.raises(UserError, match=rf"^There is no environment '{env_id}' .* Did you mean (Pong|Tetris)"):
        check_env(env_id)


def test_an_id_without_its_version_is_the_newest() -> None:
    assert gymnasium_id("ALE/Pong") == gymnasium_id("ALE/Pong-v5") != gymnasium_id("Pong-v4")
    assert gymnasium_id("ale_py:Pong") == gymnasium_id("Pong-v4")


def test_an_id_means_what_gymnasium_says_of_it() -> None:
    gym.register_envs(ale_py)
    specs = [spec for spec in gym.registry.values() if str(spec.entry_point) == "ale_py.env:AtariEnv"]
    assert len(specs) > 300
    assert {spec.id[:-3] for spec in specs if spec.id.endswith("-v4")} == {
        f"{game.name}{frames}" for game in games() if game.legacy_ids for frames in ("", "NoFrameskip")
    }
    for spec in specs:
        env, own = EnvConfig(id=spec.id), gymnasium_id(spec.id)
        assert own is not None
        assert env.id == canonical_id(spec.id) in game_names()
        assert env.sticky_action_probability == spec.kwargs["repeat_action_probability"]
        assert env.full_action_space == spec.kwargs["full_action_space"]
        assert env.max_frames_per_episode == spec.kwargs["max_num_frames_per_episode"]
        frames = {4: "4", 1: "1", (2, 5): "2 to 4, drawn at random"}[spec.kwargs["frameskip"]]
        assert (own.frames, env.frame_skip) == (frames, 4)


def test_a_short_name_says_nothing_of_the_protocol() -> None:
    for name in ("Pong", "space_invaders", "Catch", "CartPole-v1", "my_module:Pong-v5"):
        assert gymnasium_id(name) is None
    assert EnvConfig(id="Pong") == EnvConfig()


def test_deterministic_ids_skip_as_in_gym() -> None:
    assert EnvConfig(id="PongDeterministic-v4", frame_stack=2) == EnvConfig(id="Pong", frame_stack=2)
    assert EnvConfig(id="PongDeterministic-v0").sticky_action_probability == 0.25
    assert EnvConfig(id="SpaceInvadersDeterministic-v4").frame_skip == 3


def test_what_is_given_wins_over_the_id() -> None:
    values = {"id": "ALE/Pong-v5", "sticky_action_probability": 0.1, "frame_skip": 2}
    assert EnvConfig(**values) == EnvConfig(**{**values, "id": "Pong"})


@pytest.mark.parametrize("env_id", [*TOYS.values(), "CartPole-v1", "mine:Own-v0", "", "ALE/Nothing-v5"])
def test_the_one_form_of_an_id_is_its_own(env_id: str) -> None:
    once = EnvConfig(id=env_id).id
    assert EnvConfig(id=once).id == once
    assert once == {toy: name for name, toy in TOYS.items()}.get(env_id, env_id)


@pytest.mark.parametrize("env_id", ["Pong-ram-v4", "ale_py:ALE/Pong-ram-v5", "Pong-ramNoFrameskip-v0"])
def test_the_memory_of_the_console_is_refused_by_the_id(env_id: str) -> None:
    for make in (lambda: build_config({"env": {"id": env_id}}, where="test"), lambda: check_env(env_id)):
        with pytest.raises(UserError, match=rf"^env\.id={env_id} shows the memory .* use Pong, ALE/Pong-v5 or Pong"):
            make()


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
