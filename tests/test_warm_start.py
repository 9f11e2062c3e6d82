"""A run that starts with the network of another: its weights, nothing else, and said wherever the run is described."""

import numpy as np
import pytest
import yaml
from conftest import draw_nothing, small_config

from a2c.config import UserError, build_config, changed
from a2c.run.checkpoint import read_checkpoint
from a2c.run.step_files import step_files
from a2c.run.training import train
from a2c.show.page import make_page
from a2c.show.runs import read_runs


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "first"
    train(config(), folder)
    return folder


def config(**sections):
    return small_config(**{"env": {"id": "Catch"}, "checkpoint": {"keep": 9}, **sections})


def begun(run):
    """The checkpoint of the start."""
    return read_checkpoint(step_files(run / "checkpoints")[0])


def test_the_weights_are_taken_and_all_else_is_fresh(first, tmp_path):
    last = step_files(first / "checkpoints")[-1]
    ppo = {"name": "ppo", "num_minibatches": 1}
    other = config(seed=5, optimizer={"name": "adam"}, algorithm=ppo, total_env_steps=64)
    train(other, tmp_path / "cold")
    for number, source in enumerate((first, last)):
        run = tmp_path / f"warm-{number}"
        train(other, run, init_from=source)
        start, cold = begun(run), begun(tmp_path / "cold")
        for key, array in read_checkpoint(last).group("model").items():
            assert array.tobytes() == start.group("model")[key].tobytes()
        assert any((a != cold.group("model")[key]).any() for key, a in start.group("model").items())
        for prefix in ("optimizer", "collector"):
            for key, array in cold.group(prefix).items():
                assert np.array_equal(array, start.group(prefix)[key])
        assert start.meta["counters"] == cold.meta["counters"]
        learned = read_checkpoint(step_files(run / "checkpoints")[-1])
        assert any((a != start.group("model")[key]).any() for key, a in learned.group("model").items())


def test_where_it_came_from_is_kept_by_resume_and_said_in_the_report(first, tmp_path, monkeypatch):
    run, plain = tmp_path / "run", tmp_path / "plain"
    train(config(total_env_steps=64), run, init_from=first)
    train(config(), run, resume=True)
    said = read_checkpoint(step_files(run / "checkpoints")[-1]).meta["init_from"]
    assert said.startswith(f"{step_files(first / 'checkpoints')[-1]}, 320 steps, weights ")
    assert yaml.safe_load((run / "config.yaml").read_text())["provenance"]["init_from"] == said
    draw_nothing(monkeypatch)
    page = make_page(read_runs([run], pytest.fail))
    assert page.count(said) == 2
    assert "so give <code>--init-from</code> too" in page
    train(config(total_env_steps=64), plain)
    assert "init_from" not in (plain / "config.yaml").read_text()


def test_other_inputs_are_told_once(first, tmp_path):
    told = []
    train(config(total_env_steps=32), tmp_path / "same", init_from=first, warn=told.append)
    assert told == []
    values = {
        "id": "a2c/Catch-v0",
        "screen_size": 43,
    }  # the convolutions leave as many numbers of 43 x 43 as of 42 x 42
    others = config(total_env_steps=32, env=values, model={"pixels": "standardized"})
    train(others, tmp_path / "other", init_from=first, warn=told.append)
    last = step_files(first / "checkpoints")[-1]
    assert told == [
        f"The network of {last} was trained with env.screen_size=42, model.pixels=scaled, and this run has "
        "env.screen_size=43, model.pixels=standardized: it knows other inputs."
    ]


def test_another_game_is_told_too(tmp_path):
    """No network for vectors sees a screen, so its size says nothing."""
    told, plain = [], {"total_env_steps": 32, "model": {"name": "mlp"}}
    train(small_config(env={"id": "CartPole-v0"}, **plain), tmp_path / "short")
    long = small_config(env={"id": "CartPole-v1", "screen_size": 84}, **plain)
    train(long, tmp_path / "long", init_from=tmp_path / "short", warn=told.append)
    assert len(told) == 1
    assert "was trained with env.id=CartPole-v0, and this run has env.id=CartPole-v1: it knows other inputs" in told[0]
    assert told[0].endswith(", and its actions may mean something else.")


def test_a_network_that_does_not_fit_is_refused_before_anything_is_written(first, tmp_path):
    for name, sections in {
        "another": {"model": {"conv_layers": [[4, 4, 4], [9, 4, 2]]}},
        "more": {"model": {"separate_value": True}},
        "game": {"env": {"id": "Pong"}},
    }.items():
        with pytest.raises(UserError, match=r"\(a2c, Catch\) is another than this run's: its array \d+ is ") as error:
            train(config(**sections), tmp_path / name, init_from=first)
        assert "leave --init-from out" in str(error.value)
        assert not (tmp_path / name).exists()


def test_a_resumed_run_takes_nothing_from_another(first):
    with pytest.raises(UserError, match="init_from is for a new run"):
        train(config(), first, resume=True, init_from=first)


def test_the_same_command_resumes_and_says_so(run_cli, first, tmp_path):
    given = tmp_path / "first.yaml"
    given.write_text((first / "config.yaml").read_text())
    command = ("train", "--config", given, "--auto-resume", "--run-dir", "r")
    short = run_cli(*command, "--steps", "64", "--init-from", first, cwd=tmp_path)
    assert (short.returncode, short.stderr) == (0, "")
    file = tmp_path / "r" / "checkpoints" / "step-000000000064.npz"
    before = read_checkpoint(file)
    again = run_cli(*command, "--steps", "96", "--init-from", first, cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines()[0] == f"r resumes from its own checkpoint; {first} was used at its start."
    after = read_checkpoint(file)  # all of it is as it was, but for the new number of steps
    assert after.config == changed(before.config, {"total_env_steps": 96})
    assert {**after.meta, "config": None} == {**before.meta, "config": None}
    assert after.arrays.keys() == before.arrays.keys()
    assert all(array.tobytes() == before.arrays[key].tobytes() for key, array in after.arrays.items())
    other = run_cli(*command, "--steps", "128", "--init-from", "gone", cwd=tmp_path)  # it is not needed any more
    assert other.returncode == 0
    assert other.stderr.startswith(f"a2c: r resumes from its own checkpoint; it started with {first}/checkpoints/step-")
    assert other.stderr.endswith(", and gone is not used.\n")
    plain = ("train", "--config", given, "--auto-resume", "--run-dir", "p", "--steps", "64")
    assert run_cli(*plain, cwd=tmp_path).returncode == 0
    refused = run_cli(*plain, "--init-from", first, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == "a2c: p was started without --init-from; leave it out, or start a new run.\n"


def test_the_command(run_cli, first, tmp_path):
    given = tmp_path / "first.yaml"
    given.write_text((first / "config.yaml").read_text())
    settings = ("train", "--config", given, "--steps", "64", "--seed", "3", "--run-dir", "r")
    ended = run_cli(*settings, "--init-from", first, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[0].endswith(f", seed 3, in r, with the network of {first}")
    nowhere = run_cli(*settings, "--init-from", "nowhere", cwd=tmp_path)
    assert nowhere.returncode == 2
    assert nowhere.stderr == "a2c: There is no run folder or checkpoint nowhere.\n"
    several = run_cli("train", "--env", "Catch", "--seeds", "2", "--init-from", first, cwd=tmp_path)
    assert several.returncode == 2
    assert "are for a single run" in several.stderr


FEW = {"learning_starts": 16, "gradient_steps": 1, "batch_size": 8, "replay_capacity": 64}  # of a replay


def play_bandit(folder, name, algorithm, told, seed=0, **how):
    values = {
        "seed": seed,
        "total_env_steps": 32,
        "env": {"id": "Bandit", "num_envs": 4},
        "model": {"name": "mlp", "hidden_sizes": [8], "separate_value": False},
        "algorithm": {"name": name, "rollout_length": 8, **algorithm},
        "runtime": {"mode": "eager"},
        "checkpoint": {"keep": 9},
    }
    train(build_config(values, where="test"), folder, warn=told.append, **how)


def test_a_run_of_the_same_algorithm_lends_its_other_networks_and_another_tells_that_it_does_not(tmp_path):
    told = []
    play_bandit(tmp_path / "first", "sac", FEW, told)
    play_bandit(tmp_path / "second", "sac", FEW, told, seed=1, init_from=tmp_path / "first")
    assert told == []
    there, here = read_checkpoint(step_files(tmp_path / "first" / "checkpoints")[-1]), begun(tmp_path / "second")
    for group in ("model", "critics", "targets"):
        for name, array in there.group(group).items():
            assert array.tobytes() == here.group(group)[name].tobytes()
    (learned,), (fresh,) = (saved.group("temperature").values() for saved in (there, here))
    assert learned != fresh
    play_bandit(tmp_path / "a2c", "a2c", {}, told)
    play_bandit(tmp_path / "third", "sac", FEW, told, init_from=tmp_path / "a2c")
    assert len(told) == 1
    assert told[0].endswith(
        ", of a2c, has no critics and no targets for sac: only the network of the policy is taken, and the others "
        "start fresh."
    )


def test_a_policy_taken_for_q_values_is_told(tmp_path):
    told = []
    play_bandit(tmp_path / "a2c", "a2c", {}, told)
    play_bandit(tmp_path / "ppo", "ppo", {"num_minibatches": 1}, told, init_from=tmp_path / "a2c")
    assert told == []
    play_bandit(tmp_path / "dqn", "dqn", FEW, told, init_from=tmp_path / "a2c")
    assert len(told) == 1
    assert "was trained by a2c and gives logits of a policy; dqn takes them for Q-values" in told[0]
