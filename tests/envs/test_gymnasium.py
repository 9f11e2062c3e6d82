"""Any registered Gymnasium environment with discrete actions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from a2c.config import EnvConfig, UserError
from a2c.envs import VecEnv, check_env, make_vec_env
from a2c.envs.gymnasium import FPS, ScalarEnvs

MODULE = '''
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, Sequence

class Corner(gym.Env):
    """Actions 5 to 7; a picture channels last; lives in info; both ends at once."""
    observation_space = Box(0, 255, (20, 30, 3), np.uint8)
    action_space = Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.picture(0), {"lives": 3}

    def step(self, action):
        self.steps += 1
        return self.picture(action), float(action), self.steps == 4, self.steps == 4, {"lives": 3 - self.steps // 2}

    def picture(self, value):
        return np.full((20, 30, 3), (value, 1, 2), np.uint8)

class Endless(Corner):
    observation_space = Sequence(Discrete(4))

gym.register("Corner-v0", Corner)
gym.register("Endless-v0", Endless)
'''


@pytest.fixture
def corner(tmp_path, monkeypatch) -> str:
    (tmp_path / "corner_env.py").write_text(MODULE)
    (tmp_path / "broken_env.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "corner_env", raising=False)
    yield "corner_env:Corner-v0"
    for name in ("Corner-v0", "Endless-v0"):
        gym.registry.pop(name, None)


def make(env_id: str, num_envs: int = 2) -> VecEnv:
    return make_vec_env(EnvConfig(id=env_id, num_envs=num_envs), seed=0)


def test_module_and_id_images_actions_and_lives(corner: str) -> None:
    envs = make(corner)
    assert envs.name == "Corner-v0" and envs.num_actions == 3 and envs.frames_per_step == 1
    assert envs.observation_space.shape == (20, 30, 3) and envs.observation_space.dtype == np.uint8
    assert envs.reset().shape == (2, 20, 30, 3)
    steps = [envs.step(np.array([0, 2])) for _ in range(4)]
    np.testing.assert_array_equal(steps[0].rewards, [5, 7])  # the space starts at 5
    assert (steps[0].observations[1] == np.array([7, 1, 2])).all()
    np.testing.assert_array_equal([step.life_lost[0] for step in steps], [False, True, False, False])


def test_game_over_at_the_time_limit_is_game_over(corner: str) -> None:
    envs = make(corner)
    envs.reset()
    last = [envs.step(np.array([0, 2])) for _ in range(4)][-1]
    assert last.terminated.all() and not last.truncated.any()


def test_cartpole_is_float32_and_its_time_limit_truncates() -> None:
    envs = make_vec_env(EnvConfig(id="CartPole-v1", num_envs=1), seed=0)
    observations = envs.reset()
    assert observations.dtype == np.float32 == envs.observation_space.dtype
    for _ in range(500):  # a hand-made controller that never lets the pole fall
        _, velocity, angle, spin = observations[0]
        step = envs.step(np.array([int(angle + 0.5 * spin + 0.05 * velocity > 0)]))
        observations = step.observations
    assert step.truncated.all() and not step.terminated.any()
    assert step.episodes[0].length == step.episodes[0].frames == 500


@pytest.mark.parametrize(
    ("env_id", "size"),
    [("FrozenLake-v1", 16), ("Taxi-v4", 500), ("Blackjack-v1", 32 + 11 + 2), ("CliffWalking-v1", 48)],
)
def test_discrete_observations_become_one_hot_float32(env_id: str, size: int) -> None:
    envs = make(env_id)
    observations = envs.reset()
    assert observations.shape == (2, size) and observations.dtype == np.float32
    assert set(np.unique(observations)) == {0.0, 1.0}
    for _ in range(40):
        observations = envs.step(np.zeros(2, np.int32)).observations
        assert envs.observation_space.contains(observations[0])


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Pnog", "Did you mean Pong"),
        ("ALE/Pnog-v5", "Did you mean Pong"),
        ("Bowlng", "Did you mean Bowling or Boxing or Pong?"),  # games, not ale-py's ids of one game
        ("Cach", "Did you mean Catch"),
        ("CartPole-v99", "Did you mean CartPole-v1"),
        ("nothing_at_all_like_it", "allowed are Atari games, the toys Catch, Bandit, Chain"),
        ("", "env.id is empty"),
        ("Pendulum-v1", "only a Discrete action space is allowed"),
        ("no_such_module:Some-v0", "The module 'no_such_module' of 'no_such_module:Some-v0' cannot be imported"),
        ("broken_env:Some-v0", "ZeroDivisionError"),
        ("corner_env:Corne-v0", "Did you mean Corner-v0"),
        (":Pong-v4", "names a module, and Pong needs none; use Pong-v4"),
        ("corner_env:PongNoFrameskip-v4", "names a module, and Pong needs none; use PongNoFrameskip-v4"),
        ("corner_env:Endless-v0", "can be flattened"),
    ],
)
def test_an_environment_that_cannot_be_played_is_refused_in_one_sentence(
    corner: str, env_id: str, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        make(env_id)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_environments_made_before_one_that_cannot_be_made_are_closed() -> None:
    made: list[gym.Env] = []
    closed: list[gym.Env] = []

    def make_two() -> gym.Env:
        if len(made) == 2:
            raise UserError("no third one")
        made.append(Rough(30, closed))
        return made[-1]

    with pytest.raises(UserError, match="no third one"):
        ScalarEnvs(make_two, 3, frames_per_step=1, name="Rough")
    assert len(made) == 2 and closed == made


def test_rewards_and_scores_too_large_are_infinite_without_a_warning(recwarn) -> None:
    simulator = ScalarEnvs(lambda: Rough(30, []), 1, frames_per_step=1, name="Rough")
    envs = VecEnv(simulator, name="Rough", seed=0, stream="train")
    envs.reset()
    steps = [envs.step(np.zeros(1, np.int32)) for _ in range(2)]
    assert np.isinf([step.rewards for step in steps]).all()
    assert steps[1].episodes[0].episode_return == np.inf
    assert not recwarn.list


class Rough(gym.Env):
    """Two steps of too large rewards; what it says of itself is wrong, and it cannot be closed."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(2)

    def __init__(self, fps: object, closed: list[gym.Env]) -> None:
        self.metadata = {"render_fps": fps}
        self.closed = closed

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return np.zeros(2, np.float32), 1e308, self.steps == 2, False, {}

    def get_action_meanings(self) -> list[str] | None:
        if self.metadata["render_fps"] == "fast":
            raise RuntimeError("no names")
        return None

    def close(self) -> None:
        self.closed.append(self)
        if self.metadata["render_fps"] == "fast":
            sys.exit("cannot be closed")
        raise RuntimeError("cannot be closed")


@pytest.mark.parametrize("fps", ["fast", None, -5, 0, np.nan, np.inf])
def test_what_an_environment_says_wrongly_of_itself_stops_nothing(fps: object) -> None:
    closed: list[gym.Env] = []
    envs = ScalarEnvs(lambda: Rough(fps, closed), 2, frames_per_step=1, name="Rough")
    assert envs.frames_per_second == FPS
    assert envs.action_names == ["action 0", "action 1"]
    envs.close()
    assert len(closed) == 2


@pytest.mark.parametrize("metadata", [None, ["rgb_array"]])
def test_metadata_that_is_no_dictionary_has_no_display_rate(metadata: object) -> None:
    rough = Rough(25, [])
    rough.metadata = metadata
    assert ScalarEnvs(lambda: rough, 1, frames_per_step=1, name="Rough").frames_per_second == FPS


def test_the_current_folder_is_kept_if_an_environment_changes_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    def make() -> gym.Env:
        os.chdir("/")
        return Rough(25, [])

    ScalarEnvs(make, 1, frames_per_step=1, name="Rough")
    assert Path.cwd() == tmp_path


def test_actions_start_at_any_integer() -> None:
    rough = Rough(25, [])
    rough.action_space = Discrete(2, start=-(2**62))
    done = []
    rough.step = lambda action: done.append(action) or (np.zeros(2, np.float32), 0.0, True, False, {})
    envs = ScalarEnvs(lambda: rough, 1, frames_per_step=1, name="Rough")
    envs.reset(np.array([True]), np.array([0]))
    envs.step(np.array([1], np.int32))
    assert done == [1 - 2**62]


def test_a_display_rate_is_the_environments_own() -> None:
    assert ScalarEnvs(lambda: Rough(np.int64(25), []), 1, frames_per_step=1, name="Rough").frames_per_second == 25


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stderr == ""
    return done.stdout


def test_nothing_is_printed_and_tensorflow_is_never_imported() -> None:
    code = """
import sys
import numpy as np
from a2c.config import EnvConfig
from a2c.envs import make_vec_env
for env_id, backend in (("Pong", "wrappers"), ("Pong", "native"), ("Catch", "native")):
    envs = make_vec_env(EnvConfig(id=env_id, backend=backend, num_envs=2), seed=0)
    envs.reset()
    envs.step(np.zeros(2, np.int32))
assert not {"tensorflow", "keras"} & set(sys.modules)
"""
    assert run(code) == ""


def test_names_are_had_without_gymnasium() -> None:
    code = "import sys, a2c.envs, a2c.games; print(len(a2c.games.game_names()), 'gymnasium' in sys.modules)"
    assert run(code) == "104 False\n"


@pytest.mark.parametrize("env_id", ["Pong", "Catch", "CartPole-v1", "a2c/Chain-v0", "no_such_module:Own-v0"])
def test_an_id_is_looked_up_without_running_a_users_module(env_id: str) -> None:
    check_env(env_id)


@pytest.mark.parametrize("env_id", ["Pongg", "CartPole-v9", "a2c/Nothing-v0"])
def test_an_id_that_no_environment_has_is_refused(env_id: str) -> None:
    with pytest.raises(UserError, match=f"^There is no environment '{env_id}'"):
        check_env(env_id)
