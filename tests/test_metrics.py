"""What a run reports: read back as TensorBoard reads it, and as a terminal shows it."""

import io
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import small_config
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorflow.python.summary.summary_iterator import summary_iterator

from a2c.algorithms.section import Metric
from a2c.algorithms.sections import A2CSection
from a2c.data.rollout import Episode
from a2c.run.counters import Counters
from a2c.run.metrics import Record, Writers, tensorboard_tags
from a2c.run.progress import LiveProgress, PlainProgress
from a2c.run.stopwatch import Stopwatch
from a2c.run.tensorboard import TensorBoardWriter
from a2c.run.training import train


def record(env_steps: int, **changes: object) -> Record:
    values = {"frames": 4 * env_steps, "updates": env_steps // 32, "episodes": 3, "episode_return_mean": -20.5}
    values |= {"episode_length_mean": 812.0, "steps_per_second": 1234.5, "skipped_updates": 0, "gradient_steps": 1}
    metrics = {"policy_loss": 0.1, "value_loss": 0.2, "entropy": 1.5, "total_loss": 0.3, "explained_variance": 0.9}
    values["metrics"] = metrics | {"grad_norm": 0.4, "learning_rate": 7e-4}
    values["metrics"] |= {name: changes.pop(name) for name in list(changes) if name in values["metrics"]}
    return Record(env_steps=env_steps, seconds=9.0, **{**values, **changes})


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_every_scalar_over_env_steps(run_dir):
    train(small_config(env={"id": "Catch"}, total_env_steps=128), run_dir)
    shown = scalars(run_dir)
    assert shown.keys() == set(tensorboard_tags(A2CSection()).values())
    assert [step for step, _ in shown["losses/entropy"]] == [64, 128]


def raw_events(folder: Path) -> list[list[tuple[int, float]]]:
    """(step, entropy) of every event that is in the files, file by file: what a reader sees that hides nothing."""
    files = []
    for file in sorted(folder.glob("events*")):
        events = [(event.step, event.summary.value) for event in summary_iterator(str(file))]
        files.append([(step, v.simple_value) for step, values in events for v in values if v.tag == "losses/entropy"])
    return files


def test_events_beyond_the_checkpoint_are_cut_off_when_a_run_goes_on(tmp_path):
    """Also half an event at the end; a file of which nothing remains is removed; later files sort behind."""
    for start, end in ((0, 200), (96, 160), (96, 128)):
        with Writers(tmp_path, small_config(), Counters(env_steps=start)) as writers:
            for env_steps in range(start + 32, end + 1, 32):
                writers.write(record(env_steps, entropy=float(start)))
        latest = sorted(tmp_path.glob("events*"))[-1]
        with latest.open("ab") as file:
            file.write(b"\x18\0\0\0\0\0\0\0half")
    TensorBoardWriter(
        tmp_path, small_config(), env_steps=200, evaluated=0
    ).close()  # mends the half event of the file before it
    assert raw_events(tmp_path) == [[(32, 0), (64, 0), (96, 0)], [(128, 96)], []]
    assert scalars(tmp_path)["losses/entropy"] == [(32, 0), (64, 0), (96, 0), (128, 96)]


def test_a_clock_that_was_set_back_does_not_change_the_order_of_the_files(tmp_path):
    future = tmp_path / "events.out.tfevents.9999999000.host.1"
    for start in (0, 32):
        with Writers(tmp_path, small_config(), Counters(env_steps=start)) as writers:
            writers.write(record(start + 32, entropy=float(start)))
        if start == 0:
            next(tmp_path.glob("events*")).rename(future)
    assert min(tmp_path.glob("events*")) == future
    assert raw_events(tmp_path) == [[(32, 0)], [(64, 32)]]


def test_an_event_file_that_is_a_link_or_nonsense_is_left_or_cut_without_harm(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "events.out.tfevents.0000000001.link").symlink_to(elsewhere)
    (folder / "events.out.tfevents.0000000002.huge").write_bytes(b"\xff" * 40)
    (folder / "events.out.tfevents.x").write_bytes(b"\x03\0\0\0\0\0\0\0sum.\xff\xff\xffsum.")
    TensorBoardWriter(folder, small_config(), env_steps=5, evaluated=0).close()
    assert elsewhere.read_bytes() == b"precious"
    assert len(list(folder.iterdir())) == 2


def test_counters_keep_the_last_100_games_and_survive_a_checkpoint():
    counters = Counters(seconds=9.0)
    games = [Episode(0, number, 0, float(number), 10 * number, 0) for number in range(150)]
    counters.advance(80, 4, 16)
    for game in games[:3]:
        counters.count(game.episode_return, game.length)
    assert (counters.return_mean, counters.length_mean) == (1, 10)
    for game in games[3:]:
        counters.count(game.episode_return, game.length)
    assert (counters.updates, counters.env_steps, counters.frames, counters.episodes) == (1, 80, 320, 150)
    assert counters.return_mean == sum(range(50, 150)) / 100
    assert counters.length_mean == 10 * counters.return_mean
    other = Counters()
    other.restore(counters.state())
    assert other == counters
    other.advance(80, 4, 16)
    other.count(games[0].episode_return, games[0].length)
    assert len(other.returns) == 100


def test_an_evaluation_counts_neither_as_training_nor_in_its_speed(monkeypatch):
    now = 100.0
    monkeypatch.setattr("a2c.run.stopwatch.time.perf_counter", lambda: now)
    counters = Counters(seconds=50.0)
    clock = Stopwatch(counters)
    for seconds, count in ((3.0, clock.tick), (60.0, clock.skip), (1.0, clock.tick)):
        now += seconds
        count()
    counters.advance(80, 4, 1)
    assert (counters.seconds, clock.lap()) == (54.0, 20.0)


def test_plain_lines_have_numbers_units_and_an_eta():
    text = io.StringIO()
    view = PlainProgress(Console(file=text), "Pong, seed 0")
    view.start(small_config(total_env_steps=32000), Counters())
    view.show(record(3200), Counters())
    view.show(record(6400, episode_return_mean=None, policy_loss=math.nan), Counters())
    headline, first, second = text.getvalue().splitlines()
    assert headline == "Pong, seed 0"
    assert re.search(r"3,200 steps +10%  return +-20\.50 +1,234 steps/s  eta 0:00:23", first)
    assert re.search(r"return +-  .*policy_loss -  ", second)


def test_the_name_of_a_metric_is_no_markup():
    text = io.StringIO()
    view = PlainProgress(Console(file=text), "Pong, seed 0")
    view.start(small_config(), Counters())
    view.metrics = [Metric("policy_loss[/old]", "policy loss"), Metric("entropy[old]", "entropy")]
    view.show(replace(record(3200), metrics={"policy_loss[/old]": 0.1, "entropy[old]": 1.5}), Counters())
    assert text.getvalue().endswith("policy_loss[/old] 0.1000  entropy[old] 1.5000\n")


def plain(text: str) -> str:
    """Without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_live_view_shows_progress_returns_and_the_last_games_at_any_width(width):
    text = io.StringIO()
    counters = Counters(env_steps=3200)
    counters.returns.extend([-21.0, -19.0] * 10)
    with LiveProgress(Console(file=text, force_terminal=True, width=width), "Pong, seed 0") as view:
        view.announce()
        view.start(small_config(total_env_steps=32000), counters)
        view.show(record(3200), counters)
    for wanted in ("Pong, seed 0", "3,200 of 32,000 steps", "10%", "-20.50 return", "entropy", "-21  -19", "eta "):
        assert wanted in plain(text.getvalue()), wanted
    drawn = plain(text.getvalue()).split("Pong, seed 0\n")[1].replace("\r", "\n").split("\n")
    assert max(map(len, drawn)) <= width


def test_the_headline_is_on_the_screen_before_tensorflow_is_imported(tmp_path):
    code = """
import sys
import a2c.cli.training
from rich.console import Console
from a2c.cli import main
from a2c.run.progress import LiveProgress
sys.modules["tensorflow"] = None  # its import fails
a2c.cli.training._progress = lambda headline, quiet: LiveProgress(Console(force_terminal=True), headline)
sys.argv = ["a2c", "train", "--env", "Catch"]
main()
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert "Catch with the recipe" in plain(shown.stdout)
    assert "tensorflow" in shown.stderr


def test_clock_steps_and_speed_move_between_two_lines_of_metrics(monkeypatch):
    text = io.StringIO()
    now = 100.0
    monkeypatch.setattr("a2c.run.progress.time.monotonic", lambda: now)
    view = LiveProgress(Console(file=text, force_terminal=True, width=100, get_time=lambda: now), "Pong, seed 0")
    counters = Counters(env_steps=3200)

    def seen() -> list[tuple[str, ...]]:
        return re.findall(r"([\d,]+) of 4,000 steps +(\S+) steps/s +(\S+) +eta (\S+)", plain(text.getvalue()))

    with view:
        view.start(small_config(total_env_steps=4000), counters)
        for _ in range(9):
            now += 0.125
            counters.seconds += 0.125
            counters.env_steps += 80
            view.tick()
        assert seen() == [
            ("3,200", "-", "0:00:00", "..."),
            ("3,520", "640", "0:00:00", "0:00:00"),
            ("3,840", "640", "0:00:01", "0:00:00"),
        ]
        now += 20  # an evaluation: no second of training
        view.evaluating([1.0, 2.0], 10)
        assert seen()[-1] == ("3,920", "640", "0:00:21", "0:00:00")
        assert "evaluation  2 of 10 games  mean 1.50" in plain(text.getvalue())
        counters.env_steps += 200
        view.show(record(4120), counters)
        assert seen()[-1][0] == "4,000"  # the last update may do more


def test_a_terminal_of_another_width_is_drawn_on_anew():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100)
    with LiveProgress(console, "Pong, seed 0") as view:
        view.announce()
        view.start(small_config(total_env_steps=32000), Counters(env_steps=3200))
        console.width = 50
        view.show(record(3200), Counters())
    before, after = map(plain, text.getvalue().split("\x1b[2J"))
    assert before.count("Pong, seed 0") == after.count("Pong, seed 0") == 1
    assert "10%" in after
