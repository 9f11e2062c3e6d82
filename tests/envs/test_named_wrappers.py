"""Wrappers that a configuration names: where they are applied, what is scored, and that they are replayed exactly."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import yaml
from conftest import assert_one_sentence, small_config

from a2c import extensions
from a2c.config import Config, EnvConfig, UserError, build_config, dump_config, load_config
from a2c.envs import VecEnv, action_names, is_native, make_filmed_env, make_vec_env
from a2c.envs.gymnasium import ScalarEnvs
from a2c.evaluation.evaluate import evaluate, games_to_play, play
from a2c.run.lookup import find_checkpoint
from a2c.run.training import train
from a2c.show.game import replay

MODULE = '''
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, Sequence

class Shift(gym.RewardWrapper):
    """Pays more at every step."""
    def __init__(self, env, by=1.0):
        super().__init__(env)
        self.by = by

    def reward(self, reward):
        return reward + self.by

class Fresh(gym.Wrapper):
    def __init__(self, env):
        self.inner = env

class Twice(gym.RewardWrapper):
    def reward(self, reward):
        return 2 * reward

class Every(gym.Wrapper):
    """Does each action `times` times, and some in the reset."""
    def __init__(self, env, times=2):
        super().__init__(env)
        self.times = times

    def reset(self, **how):
        super().reset(**how)
        observation, reward, *_, info = self.env.step(0)
        return observation, info

    def step(self, action):
        for _ in range(self.times):
            answer = self.env.step(action)
            if answer[2] or answer[3]:
                break
        return answer

class Dots(gym.ObservationWrapper):
    """Draws what was done since the reset, and a number of its own, into the picture."""
    def reset(self, *, seed=None, options=None):
        self.done = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.done = (7 * self.done + int(action) + 1) % 251
        return super().step(action)

    def observation(self, observation):
        observation = observation.copy()
        observation.flat[0], observation.flat[1] = self.done, self.np_random.integers(256)
        return observation

class Lifelong(gym.ObservationWrapper):
    """Remembers more than its seed and its actions."""
    steps = 0

    def observation(self, observation):
        type(self).steps += 1
        return observation + np.float32(self.steps)

class Last(gym.Wrapper):
    """One action less, the others in reverse."""
    def __init__(self, env):
        super().__init__(env)
        self.action_space = Discrete(env.action_space.n - 1)

    def step(self, action):
        return self.env.step(self.env.action_space.n - 1 - action)

class Flat(gym.ObservationWrapper):
    def __init__(self, env, space="flat"):
        super().__init__(env)
        self.observation_space = {"flat": Box(0, 255, (9,), np.uint8), "odd": Sequence(Discrete(2))}[space]

class Torques(gym.ActionWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.action_space = Box(-1, 1, (2,))

class Sick(gym.Wrapper):
    def __init__(self, env):
        raise RuntimeError("no colours\\nat all")

class Late(gym.Wrapper):
    def reset(self, **how):
        raise KeyError("late")

def plain(env):
    return env
'''


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch) -> Iterator[None]:
    """The module `own_wrappers`, which this process trusts as long as a test runs."""
    (tmp_path / "own_wrappers.py").write_text(MODULE)
    (tmp_path / "broken_wrappers.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_wrappers", raising=False)
    monkeypatch.setenv(extensions.TRUSTED, "")
    monkeypatch.setattr(extensions, "_given", {})
    yield
    sys.modules.pop("own_wrappers", None)


def config_of(*wrappers: object, **env: object) -> EnvConfig:
    """Of wrappers of `own_wrappers` (`Shift`) or of others (`module:Name`), which the user has named."""
    named = [_named(entry) for entry in wrappers]
    for name in extensions.wrapper_names(named):
        extensions.trust(name)
    return EnvConfig(**{"id": "Chain", "num_envs": 2, "wrappers": named, **env})


def _named(entry: object) -> object:
    if isinstance(entry, dict):
        return {_named(name): arguments for name, arguments in entry.items()}
    return entry if ":" in entry else f"own_wrappers:{entry}"


def make(*wrappers: object, **env: object) -> VecEnv:
    return make_vec_env(config_of(*wrappers, **env), seed=3)


def test_the_first_is_innermost_and_the_score_is_of_the_rewards_inside_them() -> None:
    plain, shifted, doubled = make(), make("Twice", {"Shift": {"by": 3}}), make({"Shift": {"by": 3}}, "Twice")
    for envs in (plain, shifted, doubled):
        envs.reset()
    for action in [1, 0] * 20:
        raw, one, other = (envs.step(np.full(2, action)) for envs in (plain, shifted, doubled))
        np.testing.assert_allclose(one.rewards, 2 * raw.rewards + 3)
        np.testing.assert_allclose(other.rewards, 2 * (raw.rewards + 3))
        assert raw.episodes == one.episodes == other.episodes
        assert not raw.truncated.any() or raw.episodes[0].episode_return > 0
    assert plain.state()["episode_returns"].tobytes() == shifted.state()["episode_returns"].tobytes()


def test_a_wrapper_that_does_several_steps_in_one_is_scored_for_all_and_not_for_its_resets() -> None:
    plain, twice = make(), make("Every")
    plain.reset(), twice.reset()
    plain.step(np.zeros(2, np.int32))  # as the wrapper does in its reset
    ours, theirs = ([envs.step(np.zeros(2, np.int32)) for _ in range(n)] for envs, n in ((plain, 31), (twice, 16)))
    assert len(theirs[-1].episodes) == len(ours[-1].episodes) == 2
    assert theirs[-1].episodes[0].episode_return == pytest.approx(3.1)
    assert ours[-1].episodes[0].episode_return == pytest.approx(3.2)
    assert theirs[-1].episodes[0].length == 16


def test_an_atari_game_is_wrapped_inside_of_its_frame_stack() -> None:
    """The dot of each screen is in the stack; the wrapper's screens have another size."""
    resize = {"gymnasium.wrappers:ResizeObservation": {"shape": [24, 20]}}
    config = config_of(resize, "Dots", id="Breakout", frame_stack=3)
    assert config.backend == "wrappers" and not is_native(config)
    with make_vec_env(config, seed=3) as envs:
        assert envs.observation_space.shape == (24, 20, 3)
        envs.reset()
        dots = [0, *(envs.step(np.full(2, 2)).observations[0, 0, 0, -1] for _ in range(4))]
        assert dots[1] == 3 and len({*dots}) == 5
        assert envs.step(np.full(2, 2)).observations[0, 0, 0, :2].tolist() == dots[-2:]


def test_actions_may_become_fewer_and_have_no_names_then() -> None:
    assert action_names(config_of("Last", id="Pong")) == [f"action {i}" for i in range(5)]
    with make("Last", id="Catch") as envs:
        assert envs.num_actions == 2


ATARI = {"id": "Breakout", "screen_size": 24, "sticky_action_probability": 0.25, "max_frames_per_episode": 120}
STICKY = {"gymnasium.wrappers:StickyAction": {"repeat_action_probability": 0.5}}


@pytest.mark.parametrize(
    ("wrappers", "env"),
    [
        (["Shift"], {"id": "CartPole-v1"}),
        (["Dots", "Every"], {"id": "Catch"}),
        pytest.param(["Dots", STICKY], ATARI, marks=pytest.mark.integration),
        ([STICKY, "Dots", "Shift"], {**ATARI, "reseed_after": 60}),
    ],
)
def test_what_is_a_function_of_seed_and_actions_is_replayed_exactly(wrappers, env) -> None:
    """Over several episodes of a series, for wrappers with and without a state, and such that draw."""
    rng = np.random.default_rng(0)
    config = config_of(*wrappers, **env)
    with make_vec_env(config, seed=3) as one, make_vec_env(config, seed=3) as other:
        one.reset()
        for t, actions in enumerate(rng.integers(one.num_actions, size=(80, 2))):
            step = one.step(actions)
            if t in (38, 65):
                observations, lost = other.restore(one.state())
                assert lost == 0
                assert observations.tobytes() == step.observations.tobytes()
            elif t > 38:
                for x, y in zip(step[:-1], (replayed := other.step(actions))[:-1], strict=True):
                    assert x.tobytes() == y.tobytes()
                assert step.episodes == replayed.episodes


def test_a_wrapper_that_remembers_more_is_noticed() -> None:
    one, other = make("Lifelong"), make("Lifelong")
    one.reset()
    for _ in range(9):
        one.step(np.ones(2, np.int32))
    assert other.restore(one.state())[1] == 2


def learning(*wrappers: object, **sections: object) -> Config:
    config = small_config(
        env={"id": "CartPole-v1"},
        model={"name": "mlp", "hidden_sizes": [8]},
        logging={"trackers": []},
        **sections,
    )
    return config.model_copy(update={"env": config_of(*wrappers, id="CartPole-v1", num_envs=4)})


def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(tmp_path) -> None:
    config = learning(STICKY, {"Shift": {"by": 2}}, total_env_steps=128)
    train(config, tmp_path / "whole")
    train(config.model_copy(update={"total_env_steps": 64}), tmp_path / "halves")
    train(config, tmp_path / "halves", resume=True, warn=pytest.fail)
    assert find_checkpoint(tmp_path / "whole").bits == find_checkpoint(tmp_path / "halves").bits


def test_an_evaluation_says_that_wrappers_were_on_and_no_command_runs_them_unnamed(tmp_path, run_cli, monkeypatch):
    run = tmp_path / "run"
    train(learning({"Shift": {"by": 2}}, "Twice", evaluation={"episodes": 2}, total_env_steps=32), run)
    result = evaluate(run, episodes=2)
    assert result.protocol["wrappers"] == (
        'own_wrappers:Shift {"by": 2}, own_wrappers:Twice; the score is of the rewards inside them'
    )
    assert list(result.returns) == list(result.lengths)  # CartPole pays 1 a step
    monkeypatch.setenv(extensions.TRUSTED, "own_wrappers:Shift")
    monkeypatch.setattr(extensions, "_given", {})
    with pytest.raises(UserError, match="own_wrappers:Twice"):
        games_to_play(run)  # as `a2c eval` asks each run before the first game of any
    for command in ("eval", "watch", "export", "resume"):
        ended = run_cli(command, run)
        assert ended.returncode == 2
        assert ended.stderr.endswith("if you trust it, say so with --wrapper own_wrappers:Twice.\n")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "mistake", "told"),
    [
        (["bench"], ["--steps", "1"], "--steps 1 is too little to time"),
        (["tune"], ["--space", "none.yaml"], "none.yaml cannot be read"),
        (["compare", "--vary", "optimizer.learning_rate=1e-3,1e-4"], ["--out", "wrapped.yaml"], "cannot be made"),
    ],
)
def test_the_wrappers_of_a_file_may_be_named_in_every_command_that_trains(tmp_path, run_cli, command, mistake, told):
    wrapper = "gymnasium.wrappers:RecordEpisodeStatistics"
    values = dump_config(small_config(env={"id": "Catch", "wrappers": [wrapper]}))
    (tmp_path / "wrapped.yaml").write_text(yaml.safe_dump(values))
    command = [*command, "--config", "wrapped.yaml"]
    assert_one_sentence(run_cli(*command, cwd=tmp_path), 2, f"say so with --wrapper {wrapper}")
    assert_one_sentence(run_cli(*command, "--wrapper", wrapper, *mistake, cwd=tmp_path), 2, told)


def test_published_scores_are_of_games_without_wrappers() -> None:
    from a2c.evaluation.scores import protocol_name

    assert protocol_name(EnvConfig(id="Pong")) == "deepmind"
    assert protocol_name(config_of("Shift", id="Pong")) is None


def test_a_game_in_wrappers_can_be_shown() -> None:
    """The same score as it was played, and a picture of each of the wrapper's steps."""
    config = config_of({"Every": {"times": 3}}, {"Shift": {"by": 5}}, id="Catch")

    class Still:
        def act_greedily(self, observations: np.ndarray) -> np.ndarray:
            return np.ones(len(observations), np.int32)

    with make_vec_env(config, seed=3) as envs:
        (game,) = play(Still(), envs, 1, greedy=True, seed=0)
    env = make_filmed_env(config)
    steps = list(replay(env, game))
    assert [len(step.pictures) for step in steps] == [3, 3, 3, 1]
    assert [step.reward for step in steps[:-1]] == [5, 5, 5]
    assert steps[-1].score == game.episode.episode_return in (-1, 1)


# --- what is no wrapper ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrapper", "env_id", "message"),
    [
        ("Nothing", "Chain", "the module 'own_wrappers' has no 'Nothing'"),
        ("nowhere:Nothing", "Chain", "there is no module 'nowhere' here or on PYTHONPATH"),
        ("broken_wrappers:Any", "Chain", "cannot be imported: ZeroDivisionError: division by zero (broken_wrap"),
        ("plain", "Chain", "(env.wrappers) is none: it must be a subclass of gymnasium.Wrapper"),
        ("gymnasium.wrappers.vector:ClipReward", "Chain", "is none: it must be a subclass of gymnasium.Wrapper"),
        ("Sick", "Chain", "Sick (env.wrappers) cannot be made: RuntimeError: no colours (own_wrappers.py, line "),
        ({"Shift": {"more": 1}}, "Pong", "cannot be made: TypeError: "),
        ("Late", "Chain", "cannot be started: KeyError: 'late' (own_wrappers.py, line "),
        ("Torques", "Chain", "env.id=Chain in its env.wrappers has the actions Box(-1.0, 1.0, (2,), float32); only"),
        ("Torques", "Pong", "env.id=Pong in its env.wrappers has the actions Box(-1.0, 1.0, (2,), float32); only"),
        ({"Flat": {"space": "odd"}}, "Chain", "has the observations Sequence("),
        ("Fresh", "Pong", "env.id=Pong cannot be made: AttributeError: "),  # forgot super().__init__(env)
        ("Fresh", "Chain", "env.id=Chain cannot be made: AttributeError: "),
        ("Flat", "Pong", "only grey screens [height, width] of uint8 are allowed for an Atari game"),
    ],
)
def test_a_mistake_is_one_sentence(wrapper, env_id, message) -> None:
    with pytest.raises(UserError) as caught:
        make(wrapper, id=env_id).reset()
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    ["own_wrappers:Shift", ["Shift"], [3], [{}], [{"m:A": {}, "m:B": {}}], [{"m:A": 3}], [{"A": {}}], ["m:A"] * 17],
)
def test_what_env_wrappers_may_be(value) -> None:
    with pytest.raises(UserError, match=r"env\.wrappers=.* list of at most 16, each module:Name or \{module:Name: \{"):
        build_config({"env": {"wrappers": value}}, where="test")


def test_only_the_wrapper_backend_takes_them() -> None:
    given = {"id": "Pong", "wrappers": ["m:A"]}
    assert build_config({"env": given}, where="test").env.backend == "wrappers"
    assert build_config({"env": {"id": "Pong"}}, where="test").env.backend == "native"
    with pytest.raises(UserError, match=r"env\.wrappers needs env\.backend=wrappers, not native; set that, or leave"):
        build_config({"env": {**given, "backend": "native"}}, where="test")
    config = build_config({"env": given}, where="test")
    assert build_config(dump_config(config), where="test") == config


# --- whose word it is -----------------------------------------------------------------------------------------------


def test_only_what_the_user_names_is_run(tmp_path, monkeypatch) -> None:
    file = tmp_path / "strangers.yaml"
    file.write_text("env: {id: Chain, wrappers: [{own_wrappers:Shift: {by: 2}}]}")
    named = {"wrappers": ["own_wrappers:Shift"]}
    assigned = {"assignments": ["env.wrappers=[own_wrappers:Twice]"]}
    with pytest.raises(UserError, match=r"'own_wrappers:Shift' is code of that module, .* --wrapper own_wrap"):
        make_vec_env(load_config(config=file)[0].env, seed=0)
    assert "own_wrappers" not in sys.modules
    for given in (named, assigned):
        monkeypatch.setenv(extensions.TRUSTED, "")
        config, _ = load_config(config=file, **given)
        assert isinstance(make_vec_env(config.env, seed=0)._simulator, ScalarEnvs)
    config, _ = load_config(config=file, wrappers=["own_wrappers:Twice", "own_wrappers:Shift", "own_wrappers:Twice"])
    assert config.env.wrappers == ({"own_wrappers:Shift": {"by": 2}}, "own_wrappers:Twice")
