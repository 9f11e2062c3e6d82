"""Evaluation: which games count, what is said of their scores, and what may stand beside them."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import ale_py
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import GRAPH, PONG_RUN, small_config
from gymnasium.spaces import Box, Discrete

from a2c.cli.judging import print_evaluation
from a2c.config import EnvConfig, UserError, load_config
from a2c.envs import episode_seed, make_simulator
from a2c.evaluation.evaluate import evaluate, games_to_play, write_results
from a2c.evaluation.scores import PROTOCOLS, PUBLISHED, mean_interval, noops, protocol_name, references
from a2c.games import atari_game, games, published_a2c
from a2c.run.archive import read_archive, write_archive
from a2c.run.checkpoint import restored_policy
from a2c.run.lookup import find_checkpoint, find_runs, run_folder
from a2c.run.step_files import step_files
from a2c.run.training import train


class Long(gym.Env):
    """A game of 2 or of 20 steps, as its seed says; a point a step."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.left = 20 if seed % 2 else 2
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, {}


def trained(folder: Path, **sections) -> Path:
    train(small_config(total_env_steps=32, **sections), folder)
    return folder


@pytest.fixture(scope="module")
def breakout(tmp_path_factory) -> Path:
    env = {"id": "Breakout", "sticky_action_probability": 0.0, "max_frames_per_episode": 120}
    return trained(tmp_path_factory.mktemp("runs") / "breakout", env=env, runtime=GRAPH)


@pytest.fixture(scope="module")
def result(breakout):
    """Of one game."""
    return evaluate(breakout, episodes=1)


# --- which games count -----------------------------------------------------------------------------------------------


def test_short_games_are_not_over_represented(tmp_path):
    """Each environment plays its own first games, however long they are: not whichever end first."""
    gym.register("Long-v0", Long)
    run = trained(tmp_path / "run", env={"id": "Long-v0"}, model={"name": "mlp"})
    for episodes in (3, 20):
        result = evaluate(run, episodes=episodes, seed=5)
        b = min(episodes, 8)
        wanted = [episode_seed(5, "evaluation", i, n) for i in range(b) for n in range(-(-(episodes - i) // b))]
        assert result.seeds == tuple(wanted)
        assert result.lengths == tuple(20 if seed % 2 else 2 for seed in wanted)
        assert result.returns == result.lengths
        assert len(set(result.lengths)) == 2
        assert result.mean == np.mean(result.lengths)
        assert result.interval == mean_interval(result.returns)
        assert result.protocol.keys() == {"episode", "score", "episodes_per_env"}


def test_the_seed_is_of_the_draws_too(tmp_path):
    """In Chain, whose games have no luck of their own."""
    run = trained(tmp_path / "run", env={"id": "Chain"}, model={"name": "mlp"})
    returns = {seed: evaluate(run, episodes=3, seed=seed).returns for seed in (None, 0, 5)}
    assert returns[None] == returns[0] != returns[5]  # the run's own is 0


def test_a_protocol_decides_the_environment(breakout):
    trained_so = evaluate(breakout, episodes=1)
    assert trained_so.protocol["name"] == "its own"  # its games are cut short
    assert not trained_so.published
    for protocol, columns in (("deepmind", [303.0, 279.79]), ("machado", [273.0])):
        result = evaluate(breakout, episodes=1, protocol=protocol)
        assert result.protocol["name"] == protocol
        for key, value in PROTOCOLS[protocol].items():
            if key == "noop_max":
                assert result.protocol["noops"] == noops(EnvConfig(noop_max=int(value)))
            else:
                assert result.protocol[key] == value
        assert max(trained_so.lengths) <= 30 < min(result.lengths)
        assert [reference["score"] for reference in result.published] == columns


def test_sticky_actions_are_really_played_and_nothing_is_published_of_greedy_agents(breakout):
    """Same network, same actions wanted, other games."""
    plain, sticky = (evaluate(breakout, episodes=1, protocol=name, greedy=True) for name in PROTOCOLS)
    assert plain.returns + plain.lengths != sticky.returns + sticky.lengths
    assert not plain.published
    assert not sticky.published


# --- scores ----------------------------------------------------------------------------------------------------------


def test_the_interval_of_the_mean():
    assert mean_interval([3.0]) is None
    assert mean_interval([1.0, 2.0, 3.0, 4.0]) is None
    assert mean_interval([3.0] * 5) == (3.0, 3.0)
    scores = np.random.default_rng(0).gamma(2.0, 10.0, 50)
    low, high = mean_interval(scores)
    error = scores.std() / np.sqrt(50)
    assert low == pytest.approx(scores.mean() - 1.96 * error, abs=0.4 * error)
    assert high == pytest.approx(scores.mean() + 1.96 * error, abs=0.4 * error)
    assert mean_interval(scores) == (low, high)


def test_the_interval_of_few_games_is_as_wide_as_students_t_asks_for():
    """The percentiles of so few would be 2.26 / 1.96 and sqrt(10 / 9) times too narrow; the root alone is 5 %."""
    scores = np.random.default_rng(3).normal(5.0, 2.0, 10)
    low, high = mean_interval(scores)
    assert (high - low) / 2 == pytest.approx(2.262 * scores.std(ddof=1) / np.sqrt(10), rel=0.02)


@pytest.mark.parametrize(
    ("games_played", "samples", "least"),
    [
        pytest.param(10, 400, 0.90, marks=pytest.mark.slow),
        pytest.param(20, 100, 0.90, marks=pytest.mark.integration),
        pytest.param(20, 400, 0.90, marks=pytest.mark.slow),
        pytest.param(50, 400, 0.92, marks=pytest.mark.slow),
    ],
)
def test_the_interval_covers_the_mean_as_often_as_it_should(games_played, samples, least):
    rng = np.random.default_rng(1)
    scores = rng.gamma(2.0, 1.0, (samples, games_played))
    covered = [low <= 2.0 <= high for low, high in map(mean_interval, scores)]
    assert least <= np.mean(covered) <= 0.97


@pytest.mark.parametrize(("noop_max", "resets"), [(0, 5), (1, 20), (5, 30)])
def test_the_no_ops_are_as_many_as_is_said(noop_max, resets):
    """A game that has no FIRE; the screen after the start says how many frames have passed."""
    config = EnvConfig(id="Freeway", num_envs=1, noop_max=noop_max, frame_skip=1)
    envs = make_simulator(config)
    seeds = [np.array([0]), *[None] * (resets - 1)]  # the first alone, as within a series: seeding takes long
    starts = {envs.reset(np.ones(1, np.bool_), seed)[0].tobytes() for seed in seeds}
    least, most = map(int, noops(config).split(" frames")[0].split(" to "))
    assert (least, most) == (0, max(noop_max - 1, 0))
    plain = make_simulator(config.model_copy(update={"noop_max": 0}))
    observations, _ = plain.reset(np.ones(1, np.bool_), np.array([0]))
    expected = {observations[..., -1].tobytes()}
    for _ in range(most):
        expected.add(plain.step(np.zeros(1, np.int32)).observations[..., -1].tobytes())
    assert len(starts) == len(expected)


def test_presets_follow_the_protocols_they_are_of():
    names = {preset: protocol_name(load_config(config=preset)[0].env) for preset in ("atari", "pong", "machado")}
    assert names == {"atari": "deepmind", "pong": "deepmind", "machado": "machado"}
    assert protocol_name(EnvConfig(frame_skip=2)) is None
    assert protocol_name(EnvConfig(sticky_action_probability=0.25)) is None


def test_published_scores_never_stand_beside_another_protocol():
    for game in games():
        scores = published_a2c(game)
        assert scores.keys() <= PUBLISHED.keys()
        for protocol in (*PROTOCOLS, None):
            shown = references(scores, protocol, "sampled")
            assert all(reference["protocol"] == protocol for reference in shown)
            assert not references(scores, protocol, "greedy")
    assert published_a2c(atari_game("Breakout")) == {
        "ppo_paper_a2c_10m": 303.0,
        "rl_zoo3_a2c_10m": 279.79,
        "slm_lab_a2c_10m_sticky": 273.0,
    }


# --- several agents, and mistakes ------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_folder_of_runs_means_all_of_them(run_cli, tmp_path, breakout):
    for name in ("b", "deep/er/a"):
        trained(tmp_path / name, env={"id": "Catch"})
    (tmp_path / "deep" / "checkpoints").mkdir()  # with nothing in it
    assert find_runs(tmp_path) == [tmp_path / "b", tmp_path / "deep" / "er" / "a"]
    assert find_runs(tmp_path / "b") == [tmp_path / "b"]
    done = run_cli("eval", tmp_path, breakout, "--episodes", "2", "--json", tmp_path / "e.json")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "e.json").read_text())
    assert [result["env"] for result in results] == ["Catch", "Catch", "Breakout"]
    rows = [line.split() for line in done.stdout.splitlines()]
    for result, row in zip(results, rows[1:], strict=False):
        assert row[0] == result["checkpoint"]
        assert f"{result['mean']:.2f}" in row


def test_a_damaged_run_of_a_folder_is_passed_over(run_cli, tmp_path, breakout):
    trained(tmp_path / "good", env={"id": "Catch"})
    shutil.copytree(tmp_path / "good", tmp_path / "damaged")
    for file in (tmp_path / "damaged" / "checkpoints").iterdir():
        file.write_bytes(b"nonsense")
    done = run_cli("eval", tmp_path, "--episodes", "2", "--json", tmp_path / "e.json")
    assert done.returncode == 1
    assert "damaged is skipped" in " ".join(done.stderr.split())
    assert [result["checkpoint"] for result in json.loads((tmp_path / "e.json").read_text())] == [
        str(tmp_path / "good")
    ]
    named = run_cli("eval", tmp_path / "good", tmp_path / "damaged", "--episodes", "2")
    assert (named.returncode, named.stdout) == (2, "")


def test_a_run_whose_environment_is_not_installed_is_passed_over_too(run_cli, tmp_path):
    """It is found out when the game is made; the results of the others stay."""
    trained(tmp_path / "good", env={"id": "Catch"})
    gym.register("Own-v0", Long)
    trained(tmp_path / "other", env={"id": "Own-v0"}, model={"name": "mlp"})
    del gym.registry["Own-v0"]
    done = run_cli("eval", tmp_path, "--episodes", "2")
    assert done.returncode == 1
    assert "There is no environment 'Own-v0'" in done.stderr
    assert "other is skipped" in " ".join(done.stderr.split())
    assert "Catch" in done.stdout


def test_a_folder_of_runs_holds_linked_runs_and_may_hold_closed_folders(tmp_path, breakout, monkeypatch):
    (tmp_path / "linked").symlink_to(breakout)
    assert find_runs(tmp_path) == [tmp_path / "linked"]
    (tmp_path / "closed").mkdir(mode=0)

    def files_of(folder: Path) -> list[Path]:
        if "closed" in folder.parts:  # which root can read all the same
            raise PermissionError(folder)
        return step_files(folder)

    monkeypatch.setattr("a2c.run.lookup.step_files", files_of)
    assert find_runs(tmp_path) == [tmp_path / "linked"]


def test_a_folder_of_runs_holds_those_of_which_only_the_best_is_left(tmp_path, breakout):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    shutil.copy(step_files(breakout / "checkpoints")[-1], tmp_path / "run" / "checkpoints" / "best.npz")
    assert find_runs(tmp_path) == [tmp_path / "run"]


def test_every_mistake_is_found_before_the_first_game(tmp_path, breakout):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="holds no run"):
        find_runs(empty)
    for options, sentence in (
        ({"env_id": "Pong"}, "was trained on Breakout, not on Pong"),
        ({"protocol": "mine"}, "There is no protocol 'mine'; allowed are deepmind and machado"),
    ):
        for function in (games_to_play, evaluate):
            with pytest.raises(UserError, match=sentence):
                function(breakout, **options)
    catch = trained(tmp_path / "catch", env={"id": "Catch"})
    with pytest.raises(UserError, match="is one of Atari games, and the checkpoint is of Catch"):
        games_to_play(catch, protocol="machado")


def test_what_a_wrapper_is_given_is_printed_as_it_is(result, capsys):
    """It may look like the markup of the terminal."""
    wrappers = "mine:W {'name': '[/b] x', 'flags': '[red]'}"
    print_evaluation(replace(result, protocol={"name": "its own", "wrappers": wrappers}))
    assert wrappers in " ".join(capsys.readouterr().out.split())


def test_a_result_goes_where_it_is_sent(tmp_path, result):
    """To a pipe as well, whose place is not taken by a file."""
    write_results(result, tmp_path / "one.json")
    assert json.loads((tmp_path / "one.json").read_text()) == json.loads(json.dumps(asdict(result)))
    link = tmp_path / "stdout"
    link.symlink_to("/dev/stdout")
    code = f"from a2c.run.files import write_result; import pathlib; write_result(pathlib.Path({str(link)!r}), 'said')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "said", done.stderr
    assert link.is_symlink()


def test_json_has_no_numbers_that_json_does_not_know(tmp_path, result):
    write_results([replace(result, returns=(np.inf,), interval=(1.0, np.nan))], tmp_path / "r.json")
    (read,) = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    assert (read["returns"], read["interval"]) == ([None], [1.0, None])


def test_a_result_sent_to_stdout_stands_behind_what_was_printed(tmp_path):
    """Be it a file, which opening it anew would cut."""
    code = (
        "from a2c.run.files import write_result; import pathlib; print('first', flush=True);"
        "write_result(pathlib.Path('/dev/stdout'), 'second\\n'); print('third')"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, timeout=300, check=True)
    assert (tmp_path / "out").read_text() == "first\nsecond\nthird\n"


def test_a_network_of_numbers_that_are_none_is_refused(tmp_path):
    run = trained(tmp_path / "run", env={"id": "Catch"})
    file = step_files(run / "checkpoints")[-1]
    arrays = read_archive(file)
    first = next(key for key in arrays if key.startswith("model/"))
    write_archive(file, {**arrays, first: np.full_like(arrays[first], np.nan)})
    with pytest.raises(UserError, match="not finite"):
        evaluate(run)


def test_the_run_of_a_checkpoint_is_found_from_wherever_it_is_named(breakout, monkeypatch):
    file = step_files(breakout / "checkpoints")[-1]
    assert run_folder(file) == breakout
    monkeypatch.chdir(file.parent)
    assert run_folder(Path(file.name)) == breakout


# --- an evaluation that shares nothing with ours but the network -----------------------------------------------------


@pytest.mark.slow
def test_plain_gymnasium_environments_give_the_same_mean(capsys):
    """30 games of the reference agent each, in Gymnasium's own wrappers, one environment, actions drawn by NumPy."""
    saved = find_checkpoint(PONG_RUN)
    policy = restored_policy(saved, saved.config, Box(0, 255, (42, 42, 4), np.uint8), 6)
    gym.register_envs(ale_py)
    network = tf.function(policy.model)
    env = gym.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0, full_action_space=False)
    env = gym.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=42)
    env = gym.wrappers.FrameStackObservation(env, 4, padding_type="zero")
    rng = np.random.default_rng(0)
    scores = []
    for game in range(30):
        observation, _ = env.reset(seed=1000 + game)
        score, over = 0.0, False
        while not over:
            logits, _ = network(np.moveaxis(observation, 0, -1)[None], training=False)
            action = np.argmax(np.asarray(logits)[0] + rng.gumbel(size=6))
            observation, reward, terminated, truncated, _ = env.step(action)
            score += reward
            over = terminated or truncated
        scores.append(score)
    ours = evaluate(PONG_RUN, episodes=30)
    theirs, interval = np.mean(scores), mean_interval(scores)
    with capsys.disabled():
        print(f"\nours {ours.mean:.2f}, {ours.interval}; plain Gymnasium {theirs:.2f}, {interval}")
    assert interval[0] <= ours.interval[1] and ours.interval[0] <= interval[1]
    assert abs(ours.mean - theirs) < 1.5
