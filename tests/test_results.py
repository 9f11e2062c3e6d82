"""benchmarks/results.py and equal_minutes.py: what is taken from kept runs, and how trainings end. No TensorFlow."""

import csv
import importlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from a2c.analysis.statistics import MIN_SEEDS
from a2c.config import dump_config, load_config
from a2c.games import atari_game

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
END = 4_000_768  # steps of a whole run


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The benchmark, with nothing kept and no run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("results")
    for folder in ("kept", "runs"):
        (tmp_path / folder).mkdir()
        monkeypatch.setattr(module, "KEPT" if folder == "kept" else "RUNS", tmp_path / folder)
    return module


@pytest.fixture
def signals():
    """The handlers of before, again."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def settings_of(run, **changes):
    """As `a2c train` decides them today."""
    given = {"algorithm.name": run.algorithm, "seed": run.seed, "total_env_steps": run.steps}
    given |= {"evaluation.every_env_steps": 500_000, **changes}
    return dump_config(load_config(env_id=run.game, config=run.preset, overrides=given)[0])


def keep(results, game, algorithm="ppo", seed=0, steps=4_000_000, preset=None, scores=(), **changes):
    """Keep a run with the scores [(steps, mean)] of its evaluations and some settings changed."""
    run = results.Run(game, algorithm, seed, steps, preset)
    kept = {
        "command": run.command,
        "settings": settings_of(run, **changes),
        "versions": {"a2c": "0.1.0"},
        "seconds": 3600,
        "cores": 2,
        "evaluations": [{"env_steps": steps, "mean": mean, "returns": [mean]} for steps, mean in scores],
    }
    (results.KEPT / f"{run.name}.json").write_text(json.dumps(kept))
    return run


def human(game, normalized):
    """The score of a game whose human-normalized score is this, at the end of a run and at 1 M steps."""
    known = atari_game(game)
    score = known.random + normalized * (known.human - known.random)
    return [(1_000_448, score), (END, score)]


def finish(results, run):
    """The folder of a finished run, as `a2c train` leaves it."""
    folder = results.RUNS / run.name
    folder.mkdir()
    provenance = {"a2c": "0.1.0", "git": None}
    config = {"schema": 2, **settings_of(run), "provenance": provenance}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    speeds = (END / 100, END / 90, END / 9000)  # the last with a pause
    lines = [json.dumps({"env_steps": END, "steps_per_second": speed}) for speed in speeds]
    (folder / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    evaluation = {"env_steps": END, "mean": 5.0, "returns": [4.0, 6.0], "protocol": "left out"}
    (folder / "evaluations.jsonl").write_text(json.dumps(evaluation) + "\n")


def trainer(monkeypatch, tmp_path, script):
    """Have a shell script run instead of `python -m a2c`."""
    file = tmp_path / "trainer"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(file))


def signalled(monkeypatch, number):
    """Have a signal come while the next child is waited for; returns a list that will hold the child."""
    started, wait = [], subprocess.Popen.wait

    def signal_first(process, timeout=None):
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
        started.append(process)
        signal.raise_signal(number)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", signal_first)
    return started


def call(module, *words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmark", *words])
    return module.main()


# --- what is taken ----------------------------------------------------------------------------------------------------


def test_a_score_is_of_the_first_evaluation_at_or_after_its_step(results):
    run = keep(results, "Pong", scores=[(500_736, 1.0), (1_000_000, 2.0), (1_000_448, 3.0), (END, 4.0)])
    assert [run.score(steps) for steps in (500_000, 500_737, 1_000_000, 4_000_000)] == [1.0, 2.0, 2.0, 4.0]


def test_a_run_is_taken_if_its_name_and_its_command_are_the_same(results):
    run = keep(results, "Pong", scores=[(END, 1.0)])
    assert results.finished("ppo") == {"Pong": [run]}
    assert results.finished("a2c") == {}
    file = results.KEPT / "pong-ppo-0.json"
    file.write_text(file.read_text().replace("--steps 4000000", "--steps 3000000"))
    assert results.finished("ppo") == {}


def test_games_count_once_until_all_have_the_same_number_of_seeds(results):
    """Four games with one seed and one with five: pooled, the five would be more than the middle half."""
    scores = {"a": [0.0], "b": [1.0], "c": [2.0], "d": [3.0], "e": [6.0, 8.0, 10.0, 12.0, 14.0]}
    assert results.over_games(scores) == pytest.approx(2.0)  # of 0, 1, 2, 3 and 10
    assert results.over_games({"a": [0.0, 2.0], "b": [4.0, 90.0]}) == pytest.approx(3.0)  # of all four


def test_the_rows_of_a_game_and_of_all_games_take_the_mean_over_seeds(results):
    keep(results, "Pong", scores=[(END, 10.0)])
    keep(results, "Pong", seed=1, scores=[(END, 20.0)])
    row = results.table("ppo", results.finished("ppo"))[-1]
    assert re.match(r"\| Pong \| 2 \| 15\.0 \|", row)


def test_a_run_of_10_m_steps_has_a_table_of_its_own(results, monkeypatch, tmp_path):
    scores = [(steps * 1_000_000, 10.0 * steps) for steps in range(1, 11)]
    run = keep(results, "Breakout", "a2c", 0, 10_000_000, "a2c", scores, **{"algorithm.gamma": 0.9})
    assert run in results.LONG
    assert (run.name, run.changed()) == ("breakout-a2c-0-10m", ["algorithm.gamma"])
    assert run.command.startswith("a2c train --env Breakout --config a2c --seed 0 --steps 10000000 ")
    assert results.finished("a2c") == {}
    keep(results, "Pong", scores=[(500_736, 1.0), *human("Pong", 0.5)])
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(results, "HERE", tmp_path)
    assert call(results, "report", monkeypatch=monkeypatch) == 0
    page = (tmp_path / "docs/results.md").read_text().partition("## A2C to 10 M steps")[2]
    # beside the zoo's after 10 M steps
    assert "| Breakout, other settings | 1 | 10.0 | 20.0 | 40.0 | 60.0 | 80.0 | 100 | 348 | 386 | 307 |" in page
    assert "than this command has today: breakout-a2c-0-10m (algorithm.gamma)." in page


def test_the_long_runs_are_trained_if_asked_for(results, monkeypatch):
    trained = []
    monkeypatch.setattr(results, "train_all", lambda runs: trained.extend(runs) or 0)
    assert call(results, "train", "--long", "--games", "Pong", "Qbert", monkeypatch=monkeypatch) == 0
    assert [run.name for run in trained] == ["pong-a2c-0-10m"]


def test_the_zoo_is_taken_over_the_games_of_the_row_of_ours(results, monkeypatch):
    games = {"ppo": ["Pong", "Qbert"], "a2c": ["Qbert"]}
    for algorithm, game in [(name, game) for name, of in games.items() for game in of]:
        keep(results, game, algorithm, scores=human(game, 0.5))
    zoo = {"Pong": human("Pong", 0.2), "Qbert": human("Qbert", 0.6)}
    table = {(game, name, at): zoo[game][0][1] for game in zoo for name in ("a2c", "ppo", "dqn") for at in (4e6, 1e7)}
    monkeypatch.setattr(results, "zoo", lambda: table)
    ours, theirs = (results.section(name, results.finished(name)) for name in ("ppo", "a2c"))
    assert "| zoo PPO, 4 M | 0.40 |" in ours
    assert "| zoo PPO, 4 M | 0.60 |" in theirs
    assert "### PPO over 2 of 10 games" in ours
    assert "### A2C over 1 of 10 games" in theirs
    missing = next(line for line in theirs if line.startswith("Not run yet: "))
    assert "Pong" in missing
    assert "Qbert" not in missing


@pytest.mark.parametrize("fewest", [1, MIN_SEEDS - 1, MIN_SEEDS])
def test_an_interval_needs_enough_seeds_of_each_game(results, monkeypatch, fewest):
    monkeypatch.setitem(results.SEEDS, "ppo", range(MIN_SEEDS))
    for game, seeds in (("Pong", MIN_SEEDS), ("Qbert", fewest)):
        for seed in range(seeds):
            keep(results, game, seed=seed, scores=human(game, seed / 10))
    row = results.aggregate("ppo", results.finished("ppo"), 4_000_000)
    assert ("95 %" in row) == (fewest == MIN_SEEDS)


def test_the_report_says_what_its_counts_are(results, monkeypatch, tmp_path):
    keep(results, "Pong", scores=[(500_736, 1.0), *human("Pong", 0.5), (END + 1, 0.0)])
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(results, "HERE", tmp_path)
    assert call(results, "report", monkeypatch=monkeypatch) == 0
    page = " ".join((tmp_path / "docs/results.md").read_text().split())
    for words in ("1 of 10 games", "no interval", "chosen on these games, with seed 0", "of training on two cores"):
        assert words in page
    assert "95 % interval over seeds" in page
    assert not re.search(r"95 % -?\d+\.", page)
    assert (tmp_path / "docs/results.png").stat().st_size


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_of_today_are_no_change(results):
    run = keep(results, "Asteroids", scores=[(END, 1.0)])
    assert run.changed() == []
    assert results.train(run) == "asteroids-ppo-0: kept already"


def test_changed_settings_are_named_and_the_run_is_trained_anew(results, monkeypatch, tmp_path, capsys):
    changes = {"optimizer.learning_rate": 2e-3, "algorithm.clip_range": 0.2, "logging.every_updates": 7}
    run = keep(results, "Pong", scores=human("Pong", 0.5), **changes)
    assert run.changed() == ["algorithm.clip_range", "optimizer.learning_rate"]
    text = "\n".join(results.section("ppo", results.finished("ppo")))
    assert "| Pong, other settings | 1 |" in text
    assert (
        "other settings than this command has today: pong-ppo-0 (algorithm.clip_range, optimizer.learning_rate)."
        in text
    )
    finish(results, run)
    trainer(monkeypatch, tmp_path, "exit 0")
    results.train(run)
    assert "kept with other settings (algorithm.clip_range, optimizer.learning_rate)" in capsys.readouterr().out
    assert run.changed() == []


@pytest.mark.parametrize(("rate", "there"), [(1e-3, True), (2e-3, False)])
def test_a_folder_of_other_settings_is_removed_and_one_of_todays_is_resumed(
    results, monkeypatch, tmp_path, rate, there
):
    run = keep(results, "Asteroids", scores=[(END, 1.0)], **{"optimizer.learning_rate": rate})
    settings = json.loads((results.KEPT / f"{run.name}.json").read_text())["settings"]
    (results.KEPT / f"{run.name}.json").unlink()
    folder = results.RUNS / run.name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    trainer(monkeypatch, tmp_path, "exit 2")
    with pytest.raises(results.UnfinishedError):
        results.train(run)
    assert folder.exists() == there


def test_a_key_that_is_newer_than_the_run_had_its_default(results):
    """`ppo` sets algorithm.target_clip_fraction, whose default is null; nothing sets algorithm.clip_schedule."""
    run = keep(results, "Asteroids", scores=[(END, 1.0)])
    file = results.KEPT / f"{run.name}.json"
    kept = json.loads(file.read_text())
    del kept["settings"]["algorithm"]["clip_schedule"]
    file.write_text(json.dumps(kept))
    assert run.changed() == []
    del kept["settings"]["algorithm"]["target_clip_fraction"]
    file.write_text(json.dumps(kept))
    assert run.changed() == ["algorithm.target_clip_fraction"]


# --- trainings --------------------------------------------------------------------------------------------------------


def test_a_finished_folder_is_kept_with_its_settings_and_versions(results, monkeypatch, tmp_path):
    run = results.Run("Seaquest", "ppo", 0)
    finish(results, run)
    trainer(monkeypatch, tmp_path, 'echo "$@" > "$(dirname "$0")/words"')
    assert results.train(run) == "seaquest-ppo-0: 5.0 after 2 minutes"
    assert (tmp_path / "words").read_text().startswith(f"-m {run.command} --run-dir {results.RUNS / run.name}")
    kept = run.kept()
    assert list(kept) == ["command", "settings", "versions", "seconds", "cores", "evaluations"]
    assert kept["settings"] == settings_of(run)
    assert kept["versions"] == {"a2c": "0.1.0", "git": None}
    assert kept["evaluations"] == [{"env_steps": END, "mean": 5.0, "returns": [4.0, 6.0]}]
    assert results.train(run) == "seaquest-ppo-0: kept already"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 143", "stopped (code 143); the same command resumes it"),
        ("kill -KILL $$", "stopped (code -9); the same command resumes it"),
        ("exit 2", "failed (code 2)"),
        ("exit 0", "failed (code 0)"),  # without a last evaluation
    ],
)
def test_what_came_of_a_run_is_told_and_the_others_are_trained(
    results, monkeypatch, tmp_path, capsys, signals, script, said
):
    finish(results, results.Run("Qbert", "ppo", 0))
    trainer(monkeypatch, tmp_path, f'case "$*" in *Pong*) {script} ;; esac')
    words = ("train", "--games", "Pong", "Qbert", "--algorithms", "ppo", "--seeds", "0")
    assert call(results, *words, monkeypatch=monkeypatch) == 1
    told = capsys.readouterr()
    assert f"pong-ppo-0: {said}" in told.err
    assert ("resumes" in told.err) == ("resumes" in said)
    assert "qbert-ppo-0: 5.0" in told.out
    assert call(results, "train", *words[1:2], *words[3:], monkeypatch=monkeypatch) == 0


def test_a_finished_folder_that_a2c_refuses_is_not_kept(results, monkeypatch, tmp_path):
    """As it does if the folder was started with other settings."""
    run = results.Run("Pong", "ppo", 0)
    finish(results, run)
    trainer(monkeypatch, tmp_path, "exit 2")
    with pytest.raises(results.UnfinishedError, match=r"failed \(code 2\)"):
        results.train(run)
    assert run.kept() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_training_too(results, monkeypatch, tmp_path, signals, number):
    trainer(monkeypatch, tmp_path, "exec sleep 300")
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    started = signalled(monkeypatch, number)
    with pytest.raises(SystemExit) as ended:
        results.train_all([results.Run("Pong", "ppo", 0)])
    assert ended.value.code == 128 + number
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "--algorithms", "a2c", "--seeds", "1"], "there are --algorithms a2c --seeds 0\n"),
        (["train", "--seeds", "7"], "there are --algorithms ppo --seeds 0 1, or a2c --seeds 0\n"),
        (["report", "--games", "Pong"], "unrecognized arguments: --games Pong"),
        (["agents", "--seeds", "0"], "unrecognized arguments: --seeds 0"),
    ],
)
def test_an_empty_plan_and_idle_options_are_refused(results, monkeypatch, capsys, words, said):
    with pytest.raises(SystemExit) as ended:
        call(results, *words, monkeypatch=monkeypatch)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# --- equal minutes ----------------------------------------------------------------------------------------------------


@pytest.fixture
def contestant(results, tmp_path, monkeypatch):
    """One of ours in tmp_path/ppo."""
    module = importlib.import_module("equal_minutes")
    return module.Contestant("ppo", "Pong", 0, tmp_path)


def test_a_mean_of_0_is_a_score(contestant):
    contestant.folder.mkdir()
    metrics = contestant.folder / "metrics.jsonl"
    rows = [{"env_steps": at, "episode_return_mean": mean} for at, mean in ((1, -1.5), (2, 0.0), (3, None))]
    metrics.write_text("\n".join(json.dumps(row) for row in rows))
    assert contestant._latest() == (2, 0.0)
    metrics.unlink()
    with (contestant.folder / "progress.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time/total_timesteps", "rollout/ep_rew_mean"])
        writer.writerows([[4, "0.0"], [5, ""]])
    assert contestant._latest() == (4, 0.0)


def test_what_cannot_be_installed_is_told(results, monkeypatch, capsys, signals):
    module = importlib.import_module("equal_minutes")

    def refuse(peer):
        raise module.LeftOutError(f"{peer} cannot be installed.")

    monkeypatch.setattr(module, "virtual_environment", refuse)
    assert call(module, "train", "--games", "Pong", monkeypatch=monkeypatch) == 2
    assert capsys.readouterr().err == "sb3 cannot be installed.\n"


def test_a_contestant_that_fails_says_why(contestant):
    contestant.command = [sys.executable, "-c", "raise RuntimeError('no game here')"]
    with pytest.raises(SystemExit, match=r"^ppo failed: RuntimeError: no game here$"):
        contestant.play(30)


def test_each_round_is_kept(contestant, monkeypatch, tmp_path, signals):
    module = sys.modules["equal_minutes"]
    # 5 rounds end at 3.05 s, which is kept as 0.1 minutes, 4 at 2.93 s as 0.0
    contestant.command, contestant.seconds = ["sleep", "300"], 2.45
    for name, value in (("NAMES", {"ppo": "ours"}), ("SLICE", 0.12), ("KEPT", tmp_path / "kept")):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "Contestant", lambda *_: contestant)
    assert call(module, "train", "--games", "Pong", "--minutes", "0.01", monkeypatch=monkeypatch) == 0
    kept = json.loads((tmp_path / "kept/pong.json").read_text())
    assert (kept["minutes"], kept["seed"], kept["curves"]) == (0.1, 0, {"ppo": []})


def test_a_signal_ends_a_contestant(contestant, monkeypatch, signals):
    module = sys.modules["equal_minutes"]
    contestant.command = ["sleep", "300"]
    monkeypatch.setattr(module, "NAMES", {"ppo": "ours"})
    monkeypatch.setattr(module, "Contestant", lambda *_: contestant)
    started = signalled(monkeypatch, signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        call(module, "train", "--games", "Pong", monkeypatch=monkeypatch)
    assert ended.value.code == 128 + signal.SIGTERM
    assert started[0].returncode == -signal.SIGKILL


# --- the others -------------------------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize(
    "words",
    [
        "sampling.py --capacity 2000 --size 12",
        "replay.py --lengths 5 --num-envs 2",
        "workers.py --env Catch --config catch --workers 1 --updates 1 --rounds 1",
    ],
)
def test_the_command_runs(words):
    name, *options = words.split()
    done = subprocess.run([sys.executable, BENCHMARKS / name, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout
