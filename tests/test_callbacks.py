"""Callbacks: what they are told is true, what they ask for is done, and the bits stay as they are."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GRAPH, small_config
from killing import StopInEvaluation, assert_same_checkpoints, read_lines

from a2c.config import UserError
from a2c.run.callbacks import Callback, Callbacks, Moment, StopAt
from a2c.run.checkpoint import read_checkpoint
from a2c.run.counters import WINDOW, Counters
from a2c.run.step_files import step_files
from a2c.run.training import train

EXAMPLE = Path(__file__).parents[1] / "examples" / "patience.py"


def config(**sections):
    """An update every 32 agent steps, 10 in all; games end after 11 steps."""
    return small_config(**{"env": {"id": "Catch"}, **sections})


class Note(Callback):
    """Notes all that it is told."""

    def __init__(self):
        self.told = []

    def on_update(self, moment):
        self.told.append(("update", moment))

    def on_episode(self, moment, episode_return, length):
        self.told.append(("episode", moment, episode_return, length))

    def on_evaluation(self, moment, mean, scores):
        self.told.append(("evaluation", moment, mean, scores))

    def on_checkpoint(self, moment, path):
        self.told.append(("checkpoint", moment, path))

    def on_end(self, moment):
        self.told.append(("end", moment))

    def of(self, event):
        return [values for name, *values in self.told if name == event]


class Answer(Callback):
    """Answers something after an update, once."""

    def __init__(self, update, answer):
        self.update, self.answer = update, answer

    def on_update(self, moment):
        if moment.updates == self.update:
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer
        return None


def saved_steps(run):
    return [read_checkpoint(file).env_steps for file in step_files(run / "checkpoints")]


def test_what_is_told_is_what_is_written_and_the_bits_stay_as_they_are(tmp_path):
    sections = config(logging={"every_updates": 1}, evaluation={"episodes": 3})
    train(sections, tmp_path / "whole")
    note = Note()
    summary = train(sections, tmp_path / "told", callbacks=[note])
    assert summary.stopped_by is None
    assert_same_checkpoints(tmp_path / "whole" / "checkpoints", tmp_path / "told" / "checkpoints")
    lines = read_lines(tmp_path / "told" / "metrics.jsonl")
    for line, (moment,) in zip(lines, note.of("update"), strict=True):
        assert isinstance(moment, Moment)
        for name in ("env_steps", "frames", "updates", "gradient_steps", "episodes"):
            assert getattr(moment, name) == line[name]
        assert moment.return_mean == line["episode_return_mean"]
        assert moment.metrics == {name: line[name] for name in moment.metrics}
        assert set(moment.metrics) > {"policy_loss", "entropy"}
        assert moment.total_env_steps == 320
        assert (moment.length_mean, moment.seconds) == (line["episode_length_mean"], line["seconds"])
    episodes = note.of("episode")
    assert [moment.episodes for moment, _, _ in episodes] == list(range(1, lines[-1]["episodes"] + 1))
    assert {score for _, score, _ in episodes} <= {-1.0, 1.0}
    assert {length for *_, length in episodes} == {11}
    (evaluation,) = read_lines(tmp_path / "told" / "evaluations.jsonl")
    ((_, mean, scores),) = note.of("evaluation")
    assert (mean, list(scores)) == (evaluation["mean"], evaluation["returns"])
    assert [path.name for _, path in note.of("checkpoint")] == [f"step-{steps:012d}.npz" for steps in (128, 256, 320)]
    assert [moment.env_steps for (moment,) in note.of("end")] == [320]


SHORT = {"checkpoint": {"keep": 1}, "total_env_steps": 160}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody stopped."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(config(**SHORT), folder)
    return folder


@pytest.mark.parametrize("answer", [False, "stop"])
def test_false_saves_and_stops_and_the_run_can_be_resumed_to_the_same_bits(whole, run_dir, answer):
    stopped = run_dir
    summary = train(config(**SHORT), stopped, callbacks=[Answer(3, answer)])
    assert (summary.stopped_by, summary.signal, summary.counters.env_steps) == ("Answer", None, 96)
    assert saved_steps(stopped) == [96]
    summary = train(config(**SHORT), stopped, resume=True)
    assert summary.stopped_by is None
    assert_same_checkpoints(whole / "checkpoints", stopped / "checkpoints")


def test_an_answer_to_an_evaluation_that_a_resume_makes_up_for_is_heard_at_once(run_dir):
    class Enough(Callback):
        def on_evaluation(self, moment, mean, scores):
            return "stop"

    judged = config(evaluation={"every_env_steps": 64, "episodes": 2})
    assert train(judged, run_dir, progress=StopInEvaluation(64)).counters.env_steps == 64
    assert train(judged, run_dir, resume=True, callbacks=[Enough()]).counters.env_steps == 64


def test_save_saves_and_goes_on(run_dir):
    summary = train(config(checkpoint={"keep": 9}), run_dir, callbacks=[Answer(3, "save"), Answer(5, True)])
    assert summary.stopped_by is None
    assert saved_steps(run_dir) == [0, 96, 128, 256, 320]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            ValueError("no such thing.\nmore"),
            r"The callback Answer: on_update raised ValueError: no such thing \(test_callb.*, line",
        ),
        (UserError("mine."), r"The callback Answer: mine\. It was"),
        (SystemExit(3), r"on_update raised SystemExit: 3 \(test_callb.*, line"),
        (7, r"on_update answered 7; None, True, False, 'stop' and 'save' are allowed\. It was"),
        ("sav", "on_update answered 'sav'"),
    ],
)
def test_a_callback_that_fails_ends_the_run_which_is_saved(run_dir, answer, sentence):
    settings, note = config(total_env_steps=128), Note()
    with pytest.raises(UserError, match=sentence) as error:
        train(settings, run_dir, callbacks=[Answer(3, answer), note])
    if type(answer) is ValueError:
        assert error.value.__cause__ is answer
    assert str(error.value).startswith("The callback Answer")
    assert f"stopped after 96 steps and saved; resume it with `a2c resume {run_dir}`." in str(error.value)
    assert "\n" not in str(error.value)
    assert len(note.of("update")) == 2  # after the error nobody is called
    assert saved_steps(run_dir)[-1] == 96
    assert not (run_dir / "incidents").exists()
    assert train(settings, run_dir, resume=True).counters.env_steps == 128


@pytest.mark.parametrize("callback", [print, Note, StopAt(1).on_update])
def test_what_is_no_callback_is_refused_before_anything_is_written(run_dir, callback):
    with pytest.raises(UserError, match="is no callback: each should be an object of a2c"):
        train(config(), run_dir, callbacks=[callback])
    assert not run_dir.exists()


def test_a_score_stops_a_run_once_a_hundred_games_average_it(run_dir):
    """Every game scores -1 or 1, so -1 is reached with the hundredth; 4 games end in 11 steps."""
    settings = config(total_env_steps=1_600, runtime=GRAPH)
    summary = train(settings, run_dir, callbacks=[StopAt(-1)])
    assert summary.stopped_by == "--stop-at -1"
    assert 100 <= summary.counters.episodes < 104
    assert train(settings, run_dir, resume=True, callbacks=[StopAt(1.1)]).stopped_by is None


def test_metrics_are_read_back_only_if_a_callback_asks():
    read = []

    class Tensor:
        def __float__(self):
            read.append(self)
            return 0.5

    class Asks(Callback):
        def on_update(self, moment):
            assert dict(moment.metrics) == {"entropy": 0.5}

    for callback, times in ((StopAt(1.0), 0), (Asks(), 1)):
        told = Callbacks([callback], config(), Counters())
        told.learned({"entropy": Tensor()})
        assert (len(read), told.error) == (times, None)


def test_a_score_is_reached_by_the_mean_of_a_hundred_games():
    stop = StopAt(-1.0)
    assert stop.is_reached(-1.0, WINDOW) and stop.is_reached(0.0, WINDOW)
    assert not any((stop.is_reached(-1.1, WINDOW), stop.is_reached(0.0, WINDOW - 1), stop.is_reached(None, 0)))


def test_the_command_stops_says_so_and_can_be_resumed(run_cli, tmp_path):
    settings = ("train", "--env", "Catch", "--steps", "2k", "--set", "runtime.mode=eager", "--run-dir", "r")
    stopped = run_cli(*settings, "--stop-at", "-1", cwd=tmp_path)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert "Stopped by --stop-at -1 and saved. Resume with:\n  a2c resume r\n" in stopped.stdout
    resumed = run_cli("resume", "r", "--stop-at", "2", cwd=tmp_path)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert "a2c eval r" in resumed.stdout
    assert "Stopped" not in resumed.stdout
    for wrong in ("nan", "inf", "good"):
        refused = run_cli(*settings, "--stop-at", wrong, cwd=tmp_path)
        assert refused.returncode == 2
        assert f"'{wrong}' is not allowed: it should be a finite number" in refused.stderr
    several = run_cli("train", "--env", "Catch", "--seeds", "2", "--stop-at", "1", cwd=tmp_path)
    assert several.returncode == 2
    assert "are for a single run" in several.stderr


@pytest.mark.integration
def test_workers_stop_together_when_the_chiefs_callback_asks(tmp_path):
    settings = ["--env", "Catch", "--steps", "20k", "--set", "logging.every_updates=1", "--run-dir", "r"]
    command = [sys.executable, "-m", "a2c", "launch", "--workers", "2", "--", "train", *settings, "--stop-at", "-1"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "Stopped by --stop-at -1 and saved. Resume with:\n  a2c launch --workers 2 -- resume r\n" in ended.stdout
    games = [line["episodes"] for line in read_lines(tmp_path / "r" / "metrics.jsonl")]
    # the chief sees the games of all with the update after their line, and the others hear of it one update later
    assert games[-3] >= 100 > games[-4]
    assert saved_steps(tmp_path / "r")[-1] == read_lines(tmp_path / "r" / "metrics.jsonl")[-1]["env_steps"]


def test_the_example_stops_and_copies(tmp_path, monkeypatch):
    example = runpy.run_path(str(EXAMPLE))
    callbacks = [example["Patience"](160), example["Copies"](tmp_path / "copies", 40, 100)]
    summary = train(config(total_env_steps=6_400), tmp_path / "run", callbacks=callbacks)
    assert summary.stopped_by == "Patience"
    assert 160 <= summary.counters.env_steps < 6_400
    assert saved_steps_of(tmp_path / "copies") == [64, 128]
    assert str(EXAMPLE.parent) not in sys.path


def saved_steps_of(folder):
    return [read_checkpoint(file).env_steps for file in step_files(folder)]


def test_a_method_that_nothing_calls_is_told(run_dir):
    class Steps(Callback):
        def _on_step(self):
            return True

    with pytest.raises(
        UserError, match=r"The callback Steps has _on_step, which nothing calls; allowed are on_update, "
    ):
        train(config(), run_dir, callbacks=[Steps()])
    assert not run_dir.exists()


def test_a_score_that_is_not_reached_is_said(run_cli, tmp_path):
    ended = run_cli("train", "--env", "Catch", "--steps", "2000", "--stop-at", "0.9", "--run-dir", tmp_path / "run")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("--stop-at 0.9 was not reached.\n")
    again = run_cli("resume", tmp_path / "run", "--stop-at", "-1", cwd=tmp_path)  # it is at its end, and above
    assert (again.returncode, "--stop-at" in again.stdout) == (0, False)


def test_a_score_that_too_few_games_have_reached_is_said(run_cli, tmp_path):
    ended = run_cli("train", "--env", "Catch", "--steps", "300", "--stop-at", "-1", "--run-dir", tmp_path / "run")
    assert "--stop-at -1 was not reached: it takes the mean of 100 games, and " in ended.stdout
