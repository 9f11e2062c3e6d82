"""A game that is played again is the game that was played, and its pictures are the emulator's own."""

from __future__ import annotations

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from conftest import small_config

from a2c.algorithms.algorithm import build_policy
from a2c.algorithms.policy import ActorCriticPolicy
from a2c.config import Config, UserError
from a2c.data.rollout import Episode
from a2c.envs import make_filmed_env
from a2c.evaluation.evaluate import PlayedGame, evaluation_envs, play
from a2c.show.game import Step, choose, chosen_of, replay, think

gym.register_envs(ale_py)

# seeds of weights and games that are short: random play loses 5 lives, or is cut by the frame limit
SETTINGS = {
    "native": {},
    "wrappers": {"backend": "wrappers"},
    "fire, no-ops, lives": {"id": "Breakout", "max_frames_per_episode": 4_000, "sticky_action_probability": 0.0},
    "sticky, all actions, wrappers": {"id": "Seaquest", "full_action_space": True, "backend": "wrappers"},
    "frame limit inside a step": {"max_frames_per_episode": 202},
    "every frame": {"frame_skip": 1, "frame_stack": 2, "max_frames_per_episode": 60},
    "no frames of an emulator": {"id": "Catch"},
    "no lives, no reward": {"id": "Freeway", "max_frames_per_episode": 100},
}


def played(config: Config, episodes: int = 1, *, greedy: bool = False) -> tuple[ActorCriticPolicy, list[PlayedGame]]:
    with evaluation_envs(config, episodes, 3) as envs:
        policy = build_policy(config, envs.observation_space, envs.num_actions)
        return policy, play(policy, envs, episodes, greedy=greedy, seed=3)


def replayed(config: Config, game: PlayedGame) -> list[Step]:
    env = make_filmed_env(config.env)
    steps = list(replay(env, game))
    env.close()
    return steps


MORE = {
    "native",
    "wrappers",
    "sticky, all actions, wrappers",
    "every frame",
    "frame limit inside a step",
    "no lives, no reward",
}
CASES = [
    pytest.param(settings, id=name, marks=[pytest.mark.integration] if name in MORE else [])
    for name, settings in SETTINGS.items()
]


@pytest.mark.parametrize("settings", CASES)
def test_a_game_played_again_has_its_observations_rewards_lives_and_end(settings):
    """Against the environments of the evaluation themselves, given the same actions once more."""
    config = small_config(env={"max_frames_per_episode": 400, **settings})
    episodes = 1 if settings.get("id") == "Breakout" else 2  # its games are long
    _, games = played(config, episodes)
    with evaluation_envs(config, episodes, 3) as envs:
        observations = envs.reset()
        rows = [[] for _ in games]
        for t in range(max(len(game.actions) for game in games)):
            actions = np.array([game.actions[min(t, len(game.actions) - 1)] for game in games], np.int32)
            step = envs.step(actions)
            for i, row in enumerate(rows):
                row.append((observations[i], step.rewards[i], step.life_lost[i], step.final_observations[i]))
            observations = step.observations
    for game, expected in zip(games, rows, strict=True):
        steps = replayed(config, game)
        assert len(steps) == game.episode.length == len(game.actions)
        assert steps[-1].score == game.episode.episode_return
        assert (steps[-1].terminated or steps[-1].truncated) and not any(
            s.terminated or s.truncated for s in steps[:-1]
        )
        for step, (observation, reward, life_lost, final) in zip(steps, expected, strict=False):
            np.testing.assert_array_equal(step.observation, observation)
            np.testing.assert_array_equal(step.next_observation, final)
            assert (step.reward, step.life_lost) == (reward, life_lost)
    if settings.get("id") == "Breakout":
        assert sum(step.life_lost for step in steps) == 4
        assert [step.lives for step in steps if step.life_lost] == [4, 3, 2, 1]


def test_several_games_of_one_environment_can_each_be_played_again():
    config = small_config(env={"id": "Catch"})
    _, games = played(config, episodes=11)
    assert [game.episode.number for game in games] == [0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0]
    assert len({game.episode.seed for game in games}) == 11
    for game in games:
        assert replayed(config, game)[-1].score == game.episode.episode_return


def test_the_pictures_are_the_emulators_own_of_every_single_frame():
    """ALE's own environment, in colour and without any wrapper of ours, with each action done four times."""
    config = small_config(env={"noop_max": 0, "fire_reset": False, "max_frames_per_episode": 240})
    _, (game,) = played(config)
    env = gym.make("ALE/Pong-v5", obs_type="rgb", frameskip=1, repeat_action_probability=0.25)
    ale = env.unwrapped.ale
    ale.setInt("random_seed", game.episode.seed)
    env.unwrapped.load_game()
    env.reset()
    screens = [env.step(action)[0] for action in game.actions for _ in range(4)]
    pictures = [picture for step in replayed(config, game) for picture in step.pictures]
    np.testing.assert_array_equal(pictures, screens)
    assert len({picture.tobytes() for picture in pictures}) > 100  # not the same one again and again


def test_catch_is_seen_where_it_is():
    config = small_config(env={"id": "Catch"})
    _, (game,) = played(config)
    for step in replayed(config, game):
        (picture,) = step.pictures
        lit = step.next_observation[:, :, 0] > 0
        cells = picture.max(axis=2) > 100
        assert np.array_equal(cells[8::16, 8::16], lit[1::3, 1::3][:12, :12])


@pytest.mark.parametrize("change", ["action", "length", "score"])
def test_a_game_that_goes_another_way_is_refused(change):
    config = small_config(env={"id": "Catch"})
    _, (game,) = played(config)
    episode, actions = game
    if change == "score":
        episode = episode._replace(episode_return=-episode.episode_return)
    if change == "length":
        actions = actions[:-1]
    if change == "action":
        actions = np.append(actions, 0)
    with pytest.raises(UserError, match="not a function of its seed and actions"):
        replayed(config, PlayedGame(episode, actions))


def test_the_network_says_what_the_policy_says():
    config = small_config(env={"max_frames_per_episode": 120})
    policy, (game,) = played(config)
    steps = replayed(config, game)
    thoughts = think(policy, config, steps)
    observations = np.stack([step.observation for step in steps])
    _, said = policy.explore(observations, np.zeros(2, np.int64))
    logits = said["logits"]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(thoughts.actions, shares, rtol=1e-5)
    np.testing.assert_allclose(thoughts.values, policy.value(observations), rtol=1e-4, atol=1e-6)
    assert thoughts.effects is None


def test_a_network_that_gives_no_numbers_is_told():
    config = small_config(env={"id": "Catch"})
    policy, (game,) = played(config)
    for variable in policy.model.variables:
        variable.assign(np.full(variable.shape, np.nan))
    with pytest.raises(UserError, match="are not finite"):
        think(policy, config, replayed(config, game))


def test_a_greedy_game_takes_the_most_probable_action():
    config = small_config(env={"max_frames_per_episode": 120})
    policy, (game,) = played(config, greedy=True)
    thoughts = think(policy, config, replayed(config, game))
    np.testing.assert_array_equal(thoughts.actions.argmax(axis=1), game.actions)


@pytest.mark.parametrize("cut", [True, pytest.param(False, marks=pytest.mark.integration)])
def test_what_came_is_what_the_values_are_trained_on(cut):
    """By hand, from the last step to the first; Breakout's rewards of 4 and 7 count as 1, and a lost life as an end."""
    config = small_config(env={"id": "Breakout", "cut_on_life_loss": cut})
    policy, (game,) = played(config)
    steps = replayed(config, game)
    rewards = [step.reward for step in steps]
    rewards[3], rewards[40] = 7.0, -4.0
    steps = [step._replace(reward=reward) for step, reward in zip(steps, rewards, strict=True)]
    wanted, after = [], 0.0
    for step in reversed(steps):
        after = np.sign(step.reward) + 0.99 * (0.0 if step.terminated or (cut and step.life_lost) else after)
        wanted.append(after)
    np.testing.assert_allclose(think(policy, config, steps).returns, wanted[::-1], rtol=1e-5, atol=1e-6)


def test_what_came_goes_on_behind_a_time_limit():
    config = small_config(env={"max_frames_per_episode": 40})
    policy, (game,) = played(config)
    steps = replayed(config, game)
    (value,) = policy.value(steps[-1].next_observation[None])
    assert steps[-1].truncated
    assert think(policy, config, steps).returns[0] == pytest.approx(0.99 ** len(steps) * value, rel=1e-4)


def test_the_best_the_worst_and_the_median_game():
    def games(*scores: float) -> list[PlayedGame]:
        return [PlayedGame(Episode(i, 0, i, score, 1, 4), np.zeros(1, np.int32)) for i, score in enumerate(scores)]

    def chosen(scores: tuple[float, ...], choice: str) -> int:
        return choose(games(*scores), choice).episode.env_index

    assert [chosen((3, 1, 2, 9, 1), choice) for choice in ("best", "worst", "median")] == [3, 1, 2]
    assert [chosen((5, 5, 1, 1), choice) for choice in ("best", "worst", "median")] == [0, 2, 3]
    assert [chosen((4,), choice) for choice in ("best", "worst", "median")] == [0, 0, 0]
    assert [chosen_of("worst", number) for number in (1, 2)] == ["the only game", "the worst of 2 games"]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"id": "Pong"}, "NOOP FIRE RIGHT LEFT RIGHTFIRE LEFTFIRE"),
        ({"id": "Breakout"}, "NOOP FIRE RIGHT LEFT"),
        ({"id": "Catch"}, "LEFT STAY RIGHT"),
    ],
)
def test_actions_have_their_names(settings, names):
    env = make_filmed_env(small_config(env=settings).env)
    assert env.action_names == names.split()
    assert env.num_actions == len(names.split())
