"""A study that several processes share: who works on what, whatever is killed. Real locks, a real database."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing.pool import ThreadPool
from threading import Barrier

import pytest

from a2c.analysis import trials
from a2c.analysis.space import Choices, Range
from a2c.analysis.trials import DEFAULT, GRID, Trials, open_storage, with_lines_on_grid
from a2c.config import UserError, load_config

pytestmark = pytest.mark.integration

CONFIG = with_lines_on_grid(load_config(config="catch-ppo", overrides={"total_env_steps": 2_000})[0])
RATE, MINIBATCHES = "optimizer.learning_rate", "algorithm.num_minibatches"
SPACE = {RATE: Range(1e-4, 1e-2, log=True), MINIBATCHES: Choices((1, 2, 4, 8))}


def open_study(folder, number=10, space=SPACE, **more) -> Trials:
    return Trials(folder, CONFIG, space, number=number, **{"storage": None, "pruner": "median", **more})


def run(study: Trials) -> list:
    """Claim and complete all trials; the score is the learning rate."""
    claims = []
    while (claim := study.claim(new=True)) is not None:
        claims.append(claim)
        study.complete(claim, claim.settings[RATE])
    return claims


def test_the_first_trial_has_the_default_settings_and_the_best_has_the_highest_score(tmp_path):
    study = open_study(tmp_path)
    claims = run(study)
    assert [claim.number for claim in claims] == list(range(10))
    assert claims[0].config == CONFIG
    assert study.described(claims[0]) == "the default settings"
    assert [study.is_default(claim) for claim in claims] == [True] + [False] * 9
    assert len({claim.settings[RATE] for claim in claims}) == 10
    assert study.best().value == max(claim.settings[RATE] for claim in claims)
    assert study.counts() == {"complete": 10, "pruned": 0, "failed": 0, "running": 0}


def test_trials_of_long_updates_have_a_line_of_metrics_at_each_point_too(tmp_path):
    config = load_config(config="catch-ppo", overrides={"total_env_steps": 100_000})[0]
    study = Trials(tmp_path, config, {"algorithm.rollout_length": Choices((8, 256))}, number=4, pruner="none")
    between = set()
    while (claim := study.claim(new=True)) is not None:
        between.add(claim.config.logging.every_updates * claim.config.env_steps_per_update)
        study.complete(claim, 0.0)
    assert len(between) > 1 and max(between) <= config.total_env_steps / GRID


def test_a_mark_that_is_no_text_is_of_another_folder(tmp_path):
    open_study(tmp_path)
    (tmp_path / "study.id").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="of another folder"):
        open_study(tmp_path)


def test_the_default_is_tried_even_if_the_space_does_not_contain_it(tmp_path):
    space = {**SPACE, RATE: Range(2e-3, 1e-2), MINIBATCHES: Choices((1, 2)), "algorithm.target_kl": Range(0.01, 0.1)}
    study = open_study(tmp_path, space=space)
    claims = run(study)
    assert claims[0].config == CONFIG
    assert claims[0].settings == {RATE: 1e-3, MINIBATCHES: 4, "algorithm.target_kl": None}
    for claim in claims[1:]:
        assert 2e-3 <= claim.settings[RATE] <= 1e-2
        assert claim.settings[MINIBATCHES] in (1, 2)
        assert 0.01 <= claim.settings["algorithm.target_kl"] <= 0.1


def test_the_draws_are_a_function_of_the_seed_however_often_the_search_is_started_again(tmp_path):
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = [claim.settings for claim in run(open_study(tmp_path / "whole"))]
    parts = []
    for number in (1, 3, 5):
        parts += [claim.settings for claim in run(open_study(tmp_path / "parts", number))]
    assert len({settings[RATE] for settings in whole}) == 10
    assert parts == whole[:5]
    (tmp_path / "another seed").mkdir()
    another = Trials(tmp_path / "another seed", CONFIG.model_copy(update={"seed": 1}), SPACE, number=2, pruner="median")
    assert [claim.settings == other for claim, other in zip(run(another), whole, strict=False)] == [True, False]


def test_a_trial_that_was_left_is_claimed_again_with_its_settings_and_what_it_reported(tmp_path):
    study = open_study(tmp_path)
    left = [study.claim(new=True) for _ in range(2)]
    left[1].report({100: 0.5})
    other = open_study(tmp_path)
    assert other.claim(new=False) is None  # they are running
    for claim in left:
        claim.lock.release()
    again = [other.claim(new=False) for _ in range(2)]
    assert [claim.settings for claim in again] == [claim.settings for claim in left]
    assert [claim.reported for claim in again] == [set(), {100}]
    assert other.claim(new=False) is None
    assert not again[1].report({100: 0.7})
    assert again[1].report({100: 0.7, 200: 0.8})
    other.prune(again[1])
    assert other.study.get_trials()[1].intermediate_values == {100: 0.5, 200: 0.8}


def test_a_trial_that_another_process_finishes_during_a_claim_is_not_claimed_again(tmp_path, monkeypatch):
    study, other = open_study(tmp_path), open_study(tmp_path)
    running = other.claim(new=True)
    lock = study._lock

    def lock_after_the_end(number):
        other.complete(running, 0.5)
        other.leave()
        return lock(number)

    monkeypatch.setattr(study, "_lock", lock_after_the_end)
    assert study.claim(new=False) is None
    monkeypatch.undo()
    run(study)
    assert study.study.get_trials()[0].value == 0.5
    assert study.counts() == {"complete": 10, "pruned": 0, "failed": 0, "running": 0}


def test_a_search_goes_on_until_each_process_has_looked_for_its_next_trial(tmp_path):
    study, other = open_study(tmp_path), open_study(tmp_path)
    study.complete(study.claim(new=True), 0.5)
    assert other.claim(new=False) is None
    assert other.some_are_running()
    running = study.claim(new=True)
    assert other.some_are_running()
    study.complete(running, 0.5)
    assert study.claim(new=False) is None
    assert not other.some_are_running()


def test_settings_that_contradict_each_other_are_refused_and_do_not_count(tmp_path):
    space = {**SPACE, MINIBATCHES: Choices((3, 4, 5, 7))}  # of 32 steps
    study = open_study(tmp_path, space=space)
    claims = run(study)
    assert len(claims) == len(study.all()) == 10
    assert {claim.settings[MINIBATCHES] for claim in claims} == {4}
    assert len(study.study.get_trials()) > 10
    assert not study.some_are_running()


def test_a_trial_that_was_left_and_contradicts_itself_does_not_end_the_search(tmp_path):
    """Its process was killed between the draw and the refusal."""
    study = open_study(tmp_path, space={**SPACE, MINIBATCHES: Choices((3, 4, 5, 7))})
    study.complete(study.claim(new=True), 0.0)
    study.study.enqueue_trial({MINIBATCHES: 3})
    assert study.study.ask().number == 1
    assert study.claim(new=True).settings[MINIBATCHES] == 4
    assert [trial.number for trial in study.all()][:2] == [0, 2]


def test_a_space_in_which_nearly_everything_contradicts_itself_ends_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "MOST_REFUSED", 5)
    config = load_config(config="catch-ppo", assignments=["algorithm.rollout_length=31", f"{MINIBATCHES}=1"])[0]
    space = {RATE: SPACE[RATE], MINIBATCHES: Range(1, 4096, whole=True)}
    study = Trials(tmp_path, config, space, number=9, storage=None, pruner="none")
    with pytest.raises(UserError, match=r"5 settings in a row contradict themselves; the last: .*rollout_length=31"):
        run(study)


def test_settings_that_were_tried_are_not_trained_again(tmp_path):
    study = open_study(tmp_path, space={MINIBATCHES: Choices((2, 4, 8))})
    claims = []
    while (claim := study.claim(new=True)) is not None:
        claims.append(claim)
        if claim.settings[MINIBATCHES] == 2:
            study.fail(claim, "it broke")
        elif claim.settings[MINIBATCHES] == 8:
            claim.report({100: 0.1})
            study.prune(claim)
        else:
            study.complete(claim, 0.4)
    assert sorted(claim.settings[MINIBATCHES] for claim in claims) == [2, 4, 8]
    told = {(trial.params[MINIBATCHES], trial.state.name, trial.value) for trial in study.all()}
    assert told == {(2, "FAIL", None), (4, "COMPLETE", 0.4), (8, "PRUNED", 0.1)}
    assert len(study.all()) == 10


def test_hopeless_trials_are_pruned_but_never_the_default(tmp_path):
    study = open_study(tmp_path, number=8)
    default, *others = [study.claim(new=True) for _ in range(8)]
    for score, claim in enumerate(others[:5], 1):
        claim.report({300: float(score), 1_000: float(score)})
        study.complete(claim, float(score))
    for claim in (default, *others[5:]):
        claim.report({300: 0.0})  # before a fifth of the run nothing is judged
        assert not study.should_prune(claim)
    for score, claim in ((2.9, default), (2.9, others[5]), (3.1, others[6])):
        claim.report({1_000: score})
    assert [study.should_prune(claim) for claim in (default, others[5], others[6])] == [False, True, False]


def test_a_default_that_failed_is_tried_again(tmp_path):
    study = open_study(tmp_path)
    study.fail(study.claim(new=True), "the disk was full")
    claim = open_study(tmp_path).claim(new=True)
    assert (claim.number, claim.config) == (1, CONFIG)
    states = {trial.number: trial.state.name for trial in study.study.get_trials() if DEFAULT in trial.user_attrs}
    assert states == {0: "FAIL", 1: "RUNNING"}


WORKER = """
import os, pathlib, sys, time
sys.path.insert(0, {tests!r})
from test_trials import RATE, open_study
folder = pathlib.Path(sys.argv[1])
study = open_study(folder, 24)
(folder / f"ready-{{os.getpid()}}").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
while (claim := study.claim(new=True)) is not None:
    with (folder / "done").open("a") as file:
        file.write(f"{{claim.number}} {{os.getpid()}}\\n")
    time.sleep(0.05)
    study.complete(claim, claim.settings[RATE])
    if len(sys.argv) > 2:
        claim = study.claim(new=True)
        print(claim.number, flush=True)
        time.sleep(100)
"""


def start(folder, *arguments) -> subprocess.Popen:
    program = WORKER.format(tests=os.path.dirname(__file__))  # noqa: PTH120
    command = [sys.executable, "-c", program, str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_no_trial_is_worked_on_by_two_processes_and_one_that_is_killed_leaves_its_own_to_others(tmp_path):
    processes = [start(tmp_path), start(tmp_path), start(tmp_path, "is killed")]
    while len(list(tmp_path.glob("ready-*"))) < 3:
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        time.sleep(0.05)
    (tmp_path / "go").touch()
    left = int(processes[2].stdout.readline())
    processes[2].send_signal(signal.SIGKILL)
    processes[2].wait()
    for process in processes[:2]:
        assert (process.communicate()[1], process.returncode) == ("", 0)
    done = [tuple(map(int, line.split())) for line in (tmp_path / "done").read_text().splitlines()]
    assert sorted(number for number, _ in done) == list(range(24))
    assert dict(done)[left] != processes[2].pid
    assert len({pid for _, pid in done}) == 3
    study = open_study(tmp_path, 24)
    assert study.counts() == {"complete": 24, "pruned": 0, "failed": 0, "running": 0}
    assert not study.some_are_running()


def test_a_lock_that_cannot_be_written_is_told_in_one_sentence(tmp_path):
    study = open_study(tmp_path)
    (tmp_path / "locks/0000/.lock").mkdir(parents=True)
    for _ in range(2):  # the trial is asked for, then left
        with pytest.raises(UserError, match="the lock of the folder, cannot be written"):
            study.claim(new=True)


def test_a_study_belongs_to_its_folder(tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db"
    here, there = tmp_path / "here" / "out", tmp_path / "there" / "out"
    for folder in (here, there):
        folder.mkdir(parents=True)
    assert len(run(open_study(here, 3, storage=open_storage(url)))) == 3
    assert len(open_study(here, 3, storage=open_storage(url)).all()) == 3
    with pytest.raises(UserError, match="of another folder; share that folder between all processes"):
        open_study(there, 3, storage=open_storage(url))
    (here / "trials/0000").mkdir(parents=True)
    with pytest.raises(UserError, match="holds trials of a study in another storage; give the same --storage again"):
        open_study(here, 3)


def test_processes_may_make_the_tables_of_a_storage_at_the_same_time(tmp_path):
    with ThreadPool(4) as threads:
        for name in "abc":
            barrier = Barrier(4)

            def open_together(url: str, barrier: Barrier = barrier) -> str:
                barrier.wait()
                return open_storage(url).get_all_studies()

            assert threads.map(open_together, [f"sqlite:///{tmp_path}/{name}.db"] * 4) == [[]] * 4


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "--storage cannot be opened with Optuna (Could not parse"),
        ("sqlite:////nowhere/at/all.db", "unable to open database file"),
        ("postgresql://localhost:1/x", "--storage cannot be opened with Optuna ("),
        ("redis://localhost", "--storage cannot be opened with Optuna ("),
    ],
)
def test_a_storage_that_cannot_be_opened_is_told_in_one_sentence(url, said):
    with pytest.raises(UserError) as told:
        open_storage(url)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_a_damaged_database_is_told_in_one_sentence(tmp_path):
    (tmp_path / "study.db").write_bytes(b"no database, but long enough to be looked at" * 50)
    with pytest.raises(UserError, match=r"study.db cannot be opened with Optuna \(.*file is not a database"):
        open_study(tmp_path)
