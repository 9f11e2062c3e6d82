"""`a2c tune` on Catch: killed and resumed, judged and reported, and what a user may do wrong."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from conftest import assert_one_sentence, press_ctrl_c
from killing import latest_checkpoint

from a2c.analysis.arms import last_record, steps_done
from a2c.analysis.judge import judge, say, write_best
from a2c.analysis.space import Range
from a2c.analysis.statistics import MIN_SEEDS, paired_difference
from a2c.analysis.trials import Trials
from a2c.analysis.tune import GRID, Found, Search, is_evaluated, on_grid, trained
from a2c.analysis.tune_report import write_tune_report
from a2c.config import load_config
from a2c.run.lock import FolderLock, is_locked

TINY = {
    "env": {"id": "Catch", "num_envs": 4, "screen_size": 36},
    "model": {"name": "small", "conv_layers": [[4, 4, 4]]},
    "algorithm": {"rollout_length": 8},
    "runtime": {"threads": 1},
    "total_env_steps": 640,
}
SPACE = {"optimizer.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "algorithm.gamma": [0.9, 0.95, 0.99]}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with tiny.yaml and space.yaml."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SPACE))
    return tmp_path


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """A search of which nothing was tried."""
    config = load_config(config="catch-ppo", overrides={"total_env_steps": 2_000})[0]
    study = Trials(tmp_path, config, {"optimizer.learning_rate": Range(1e-4, 1e-2)}, number=2, pruner="none")
    return Found(tmp_path, config, study, None)


def words(*more: str) -> list[str]:
    return ["tune", "--config", "tiny.yaml", "--space", "space.yaml", "--out", "out", *more]


def trials_in(folder: Path) -> list[dict]:
    return json.loads((folder / "report/study.json").read_text())["trials"]


# --- what is reported to the study ------------------------------------------------------------------------------------


def test_the_first_score_at_or_after_each_point_counts():
    total = GRID * 50
    lines = [(40, 1.0), (50, 2.0), (60, 3.0), (149, 4.0), (300, 5.0), (940, 6.0), (960, 7.0), (1024, 8.0)]
    assert on_grid(iter(lines), total) == {50: 2.0, 100: 4.0, 300: 5.0, 900: 6.0, 950: 7.0, total: 8.0}


def test_trials_have_enough_lines_of_metrics_and_nothing_that_only_costs_time():
    config = load_config(config="ppo", overrides={"total_env_steps": 40_960})[0]
    assert (config.logging.every_updates, config.env_steps_per_update) == (5, 1024)
    changed = trained(config)
    assert changed.logging.every_updates == 2  # of 40 updates
    assert (changed.evaluation.episodes, changed.logging.trackers) == (0, ())
    assert trained(changed) == changed
    scheduled = load_config(config="ppo", assignments=["evaluation.every_env_steps=1000000"])[0]
    assert is_evaluated(trained(scheduled))
    assert not is_evaluated(changed)


@pytest.mark.parametrize(
    ("shift", "seeds", "said"),
    [
        (+1.0, 6, "Trial 7 is better than the default: its return ended 1.05 above that of the default (6 new seeds,"),
        (-1.0, 6, "Trial 7 is worse than the default, though its score was the highest: its return ended 0.95 below"),
        (+0.0, 6, "Trial 7 is not shown to be better than the default: its return ended 0.05 above"),
        (+1.0, 5, "Trial 7 is not shown to be better than the default: its return ended 1.10 above"),
    ],
)
def test_the_last_sentence_claims_what_the_new_seeds_show_and_no_more(shift, seeds, said):
    default = [0.0, 0.3, 0.1, 0.2, 0.5, 0.4][:seeds]
    best = [value + shift + noise for value, noise in zip(default, [0.1, -0.1, 0.2, -0.2, 0.1, 0.0], strict=False)]
    sentence = say("trial 7", paired_difference(default, best), 500)
    assert sentence.startswith(said)
    assert ("; 95 % " in sentence) == (seeds >= MIN_SEEDS)


def test_a_sentence_names_what_a_difference_lacks_to_be_shown():
    default = [0.0, 0.3, 0.1, 0.2, 0.5, 0.4]
    apart = say("trial 7", paired_difference(default, [0.5, 0.8, 0.7, 0.6, 0.9, 0.399]), 500)
    assert "95 % +" in apart and "It needs p of at most 0.05; more --judge-seeds may tell." in apart
    alike = say("trial 7", paired_difference(default, [0.1, 0.2, 0.3, 0.0, 0.6, 0.3]), 500)
    assert "95 % -" in alike and "It needs an interval without 0; more --judge-seeds may tell." in alike


@pytest.mark.integration
def test_the_best_settings_are_not_replaced_by_those_of_an_earlier_best_trial(tmp_path, found):
    config, study = found.config, found.trials
    study.complete(study.claim(new=True), 0.5)
    earlier = judge(found, Search(config), seeds=0, command="")
    assert write_best(config, found, earlier, "") == tmp_path / "best.yaml"
    study.complete(study.claim(new=True), 0.7)
    study.leave()
    (tmp_path / "best.yaml").write_text("of the process that found the better one")
    assert write_best(config, found, earlier, "") is None
    assert (tmp_path / "best.yaml").read_text() == "of the process that found the better one"


@pytest.mark.integration
@pytest.mark.parametrize("write", [lambda *given: write_best(given[0].config, *given), write_tune_report])
def test_what_all_processes_of_a_search_write_is_written_by_one_at_a_time(tmp_path, found, write):
    study = found.trials
    study.complete(study.claim(new=True), 0.5)
    study.leave()
    judgement = judge(found, Search(found.config), seeds=0, command="")
    with ThreadPoolExecutor(1) as thread, FolderLock(tmp_path) as lock:
        lock.take()
        written = thread.submit(write, found, judgement, "a2c tune")
        with pytest.raises(TimeoutError):
            written.result(1)
        assert not [*tmp_path.glob("best.yaml"), *tmp_path.glob("report/*")]
        lock.release()
        assert written.result(100).exists()


# --- whole commands ---------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_search_names_no_winner_before_it_is_judged_on_new_seeds(files, run_cli):
    told = run_cli(*words("--trials", "3", "--jobs", "2", "--judge-seeds", "1"), cwd=files)
    assert (told.returncode, told.stderr) == (0, "")
    out = files / "out"
    assert trials_in(out)[0]["optimizer.learning_rate"] == 7e-4  # the default
    assert [trial["state"] for trial in trials_in(out)] == ["complete"] * 3
    for trial in trials_in(out):
        run = out / "trials" / f"{trial['trial']:04d}"
        assert trial["score"] == last_record(run)["episode_return_mean"]
        config = load_config(config=run / "config.yaml")[0]
        assert (config.optimizer.learning_rate, config.algorithm.gamma) == (
            trial["optimizer.learning_rate"],
            trial["algorithm.gamma"],
        )
        assert re.search(rf"^trial {trial['trial']}: {trial['score']:.2f}; ", told.stdout, re.MULTILINE)
    rows = list(csv.DictReader((out / "report/trials.csv").open()))
    assert [float(row["score"]) for row in rows] == [trial["score"] for trial in trials_in(out)]
    for name in ("history", "curves", "importance", "parallel"):
        assert (out / f"report/{name}.png").read_bytes().startswith(b"\x89PNG")
    best = max(trials_in(out), key=lambda trial: trial["score"])
    preset = load_config(config=out / "best.yaml")[0]
    assert preset.optimizer.learning_rate == best["optimizer.learning_rate"]
    assert preset.total_env_steps == 640
    judged = sorted(path.name for path in out.glob("judge/*/runs/*"))
    if best["trial"]:
        assert judged == ["default-s1", f"trial-{best['trial']}-s1"]
        ended = [last_record(run)["episode_return_mean"] for run in sorted(out.glob("judge/*/runs/*"))]
        side = "below" if ended[1] < ended[0] else "above"
        assert f"ended {abs(ended[1] - ended[0]):.2f} {side} that of the default (1 new seed, 640" in told.stdout
        assert "is not shown to be better than the default" in told.stdout
        assert "a 95 % interval needs 6 seeds" in told.stdout
    else:
        assert judged == []
        assert "No trial scored higher than the default settings: keep them." in told.stdout
    again = run_cli(*words("--trials", "3", "--jobs", "2", "--judge-seeds", "1"), cwd=files)
    assert again.stdout.splitlines()[-6:] == told.stdout.splitlines()[-6:]  # nothing is trained again


@pytest.mark.integration
def test_a_search_whose_judges_end_no_training_game_says_so_and_keeps_its_best_trial(files, run_cli):
    """32 environments of Chain, whose games last 32 steps, make 16 steps each; trials are scored by evaluations."""
    short = TINY | {"env": {"id": "Chain", "num_envs": 32}, "model": {"name": "mlp"}, "total_env_steps": 512}
    (files / "tiny.yaml").write_text(yaml.safe_dump(short))
    (files / "space.yaml").write_text("optimizer.learning_rate: {low: 1.0e-4, high: 1.0, log: true}")
    scored = ["--set", "evaluation.every_env_steps=256", "--set", "evaluation.episodes=2"]
    told = run_cli(*words("--trials", "6", "--jobs", "2", "--judge-seeds", "1", *scored), cwd=files)
    assert (told.returncode, told.stderr) == (0, "")
    said = "is not shown to be better than the default: no training game of a judging run ended in 512 steps"
    assert re.search(rf"^Trial \d {said}; give --steps more\.$", told.stdout, re.MULTILINE)
    assert (files / "out/best.yaml").exists() and (files / "out/report").is_dir()
    logs = [*files.glob("out/judge/*/runs/*/evaluations.jsonl")]
    assert [log.read_text() for log in logs] == ["", ""], "games whose scores nobody reads"
    (files / "out/judge").rename(files / "judged")
    (files / "out/judge").touch()
    (files / "out/best.yaml").unlink()
    failed = run_cli(*words("--trials", "6", "--jobs", "2", "--judge-seeds", "1", *scored), cwd=files)
    assert failed.returncode == 2
    assert failed.stderr.startswith("a2c: The best settings are in out/best.yaml, and could not be judged: The folder ")
    assert "Not judged" in (files / "out/best.yaml").read_text()


@pytest.mark.integration
def test_a_search_that_is_killed_twice_loses_nothing(files):
    command = [sys.executable, "-m", "a2c", *words("--trials", "3", "--jobs", "2", "--judge-seeds", "0")]
    command += ["--steps", "16000", "--set", "logging.every_updates=5"]
    runs = [files / f"out/trials/000{number}" for number in range(3)]
    said = ""
    for begun in (runs[:2], runs[2:]):
        log = (files / "log").open("w")
        process = subprocess.Popen(command, cwd=files, stdout=log, stderr=log)
        while not all(is_locked(run) and steps_done(run) for run in begun):
            assert process.poll() is None, (files / "log").read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        said += (files / "log").read_text()
    last = subprocess.run(command, cwd=files, capture_output=True, text=True, timeout=300)
    assert (last.returncode, last.stderr) == (0, "")
    said += last.stdout
    assert sorted(re.findall(r"^trial (\d):", said, re.MULTILINE)) == ["0", "1", "2"]  # each is told once
    assert [trial["state"] for trial in trials_in(files / "out")] == ["complete"] * 3
    for run in runs:
        steps = [json.loads(line)["env_steps"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert steps == list(range(160, 16_001, 160))
    assert "Not judged: the score of trial" in said or "No trial scored higher" in said


@pytest.mark.integration
def test_ctrl_c_lets_the_trials_save_and_the_same_command_continues(files):
    command = [sys.executable, "-m", "a2c", *words("--trials", "2", "--jobs", "2", "--judge-seeds", "0")]
    command += ["--steps", "200000", "--set", "logging.every_updates=5"]
    runs = [files / "out/trials/0000", files / "out/trials/0001"]
    stopped = press_ctrl_c(command, lambda: all(map(steps_done, runs)), cwd=files, timeout=120)
    assert (stopped.returncode, stopped.stderr) == (130, "")
    assert stopped.stdout.endswith("Stopped. The same command continues with what is missing.\n")
    for run in runs:
        assert not is_locked(run)
        assert 0 < steps_done(run) < 200_000
        assert steps_done(run) <= latest_checkpoint(run) < steps_done(run) + 160


@pytest.mark.integration
def test_a_trial_that_fails_is_told_and_the_search_goes_on(files, run_cli):
    space = {"model.conv_layers": [[[4, 4, 4]], [[4, 4, 4], [4, 30, 1]]]}  # the second does not fit the screen
    (files / "space.yaml").write_text(yaml.safe_dump(space))
    ended = run_cli(*words("--trials", "8", "--judge-seeds", "0"), cwd=files)
    assert (ended.returncode, ended.stderr) == (0, "")
    trials = trials_in(files / "out")
    assert (trials[0]["state"], trials[0]["reason"]) == ("complete", None)
    failed = [trial for trial in trials if trial["state"] == "failed"]
    assert failed
    assert all("conv_layers" in trial["reason"] for trial in failed)
    assert re.search(r"^trial \d: failed: .*conv_layers", ended.stdout, re.MULTILINE)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--space", "none.yaml"], "none.yaml cannot be read: No such file or directory"),
        (["--set", "env.screen_size=16", "--set", "model.conv_layers=[[4,30,1]]"], "conv_layers"),
        (["--set", "algorithm.nonsense=1"], "There is no key 'algorithm.nonsense'"),
        (["--trials", "1"], "Invalid value for '--trials': it should be 2 or more"),
        (["--storage", "nonsense"], "--storage cannot be opened with Optuna (Could not parse"),
        (["--pruner", "best"], "'best' is not one of 'median', 'hyperband', 'none'"),
        (["--set", "runtime.strategy=multiworker"], "is of several workers, and single processes are started here"),
        (["--env", "Nonsense"], "Nonsense"),
        (["--out", "tiny.yaml"], "The folder tiny.yaml cannot be made: File exists"),
        (["--out", "."], ". holds other files; choose another --out"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(files, run_cli, more, said):
    before = sorted(files.rglob("*"))
    assert_one_sentence(run_cli(*words(*more), cwd=files), 2, said)
    assert sorted(files.rglob("*")) == before


@pytest.mark.integration
def test_a_folder_of_another_search_is_left_alone(files, run_cli):
    what = words("--minutes", "0")  # no trial is started
    ended = run_cli(*what, cwd=files)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "No trial was trained to its end, so nothing was found." in ended.stdout
    for other, said in (
        (["--pruner", "none"], "pruner is 'median' there and 'none' here"),
        (["--seed", "1"], "config.seed is 0 there and 1 here"),
        (["--set", "algorithm.gamma=0.9"], "config.algorithm.gamma is 0.99 there and 0.9 here"),
    ):
        ended = run_cli(*what, *other, cwd=files)
        assert ended.returncode == 2
        assert ended.stderr == f"a2c: out holds another tuning: {said}; choose another --out.\n"


def test_without_optuna_the_extra_is_named(files, run_cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    ended = run_cli(*words(), cwd=files)
    assert (ended.returncode, ended.stderr) == (2, "a2c: a2c tune needs Optuna: pip install 'a2c[tune]'.\n")
    assert not (files / "out").exists()
