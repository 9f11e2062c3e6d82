"""The loop: what a run writes, that it repeats itself, and that resuming gives the bits of a run never stopped."""

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import GRAPH, read_lines, small_config, timeless, wait_for
from killing import StopInEvaluation, scalars
from PIL import Image
from strangers import memory
from tensorflow.python.summary.summary_iterator import summary_iterator

from a2c.config import Config, UserError, changed, load_config
from a2c.run.callbacks import Callback
from a2c.run.checkpoint import Saved, read_checkpoint
from a2c.run.folder import tell_of_another_machine
from a2c.run.progress import Progress
from a2c.run.step_files import step_files, steps_of
from a2c.run.tensorboard import TensorBoardWriter
from a2c.run.training import train


def metrics(run_dir: Path) -> list[dict]:
    return read_lines(run_dir / "metrics.jsonl")


def timeless_metrics(run_dir: Path) -> list[dict]:
    return [timeless(line) for line in metrics(run_dir)]


def final_arrays(run_dir: Path) -> dict[str, np.ndarray]:
    return read_checkpoint(step_files(run_dir / "checkpoints")[-1]).arrays


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """10 updates of Catch."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    train(small_config(env={"id": "Catch"}, runtime=GRAPH), folder)
    return folder


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> Path:
    """5 updates of Catch, with evaluations between them."""
    folder = tmp_path_factory.mktemp("judged") / "run"
    train(judged_config(), folder)
    return folder


def assert_same_bits(a: Path, b: Path) -> None:
    first, second = final_arrays(a), final_arrays(b)
    assert first.keys() == second.keys()
    for key in first:
        assert first[key].dtype == second[key].dtype
        assert first[key].tobytes() == second[key].tobytes(), key
    assert timeless_metrics(a) == timeless_metrics(b)


def test_a_run_folder_holds_what_is_promised(run_dir):
    config = small_config(env={"id": "Catch"}, evaluation={"episodes": 2}, total_env_steps=64)
    summary = train(config, run_dir)
    assert summary.counters.env_steps == 64
    assert summary.counters.updates == 2
    assert summary.counters.frames == 64
    wanted = (
        "env_steps frames updates episodes episode_return_mean episode_length_mean steps_per_second policy_loss "
        "value_loss entropy explained_variance grad_norm learning_rate seconds"
    )
    assert set(wanted.split()) <= metrics(run_dir)[-1].keys()
    written = yaml.safe_load((run_dir / "config.yaml").read_text())
    assert written["optimizer"]["learning_rate"] == 7e-4
    assert written["provenance"]["tensorflow"]
    (evaluation,) = read_lines(run_dir / "evaluations.jsonl")
    assert evaluation["episodes"] == 2
    assert evaluation["env_steps"] == 64
    assert list(run_dir.glob("events.out.tfevents.*"))
    checkpoints = [path.name for path in step_files(run_dir / "checkpoints")]
    assert checkpoints == ["step-000000000000.npz", "step-000000000064.npz"]
    assert not list(run_dir.rglob(".*tmp*"))


def test_same_config_and_seed_give_the_same_bits_and_another_seed_others(plain, tmp_path):
    config = small_config(env={"id": "Catch"}, runtime=GRAPH)
    train(config, tmp_path / "again")
    assert_same_bits(plain, tmp_path / "again")
    train(changed(config, {"seed": 1, "total_env_steps": 64}), tmp_path / "other")
    assert timeless_metrics(plain)[0] != timeless_metrics(tmp_path / "other")[0]


def test_eager_and_graph_give_the_same_run_bit_for_bit(plain, tmp_path):
    train(small_config(env={"id": "Catch"}), tmp_path / "eager")
    assert_same_bits(tmp_path / "eager", plain)


@pytest.mark.parametrize(
    ("env_id", "schedule"), [("Pong", "linear"), pytest.param("Chain", "cooldown", marks=pytest.mark.integration)]
)
def test_a_resumed_run_has_the_bits_of_one_never_stopped(tmp_path, env_id, schedule):
    """Stopped between checkpoints, in the middle of episodes, with a rate that falls and Adam's moments."""
    env = {"id": env_id}
    sections = {"env": env, "runtime": GRAPH, "optimizer": {"name": "adam", "schedule": schedule}}
    if env_id == "Chain":
        sections["model"] = {"name": "mlp"}
    whole = small_config(**sections)
    train(whole, tmp_path / "whole")
    stopped = tmp_path / "stopped"
    train(whole, stopped, progress=StopAfter(6))
    assert metrics(stopped)[-1]["updates"] == 6
    train(whole, stopped, resume=True)
    assert_same_bits(tmp_path / "whole", stopped)


def test_a_killed_run_goes_on_from_its_checkpoint_and_drops_the_lines_beyond_it(tmp_path):
    """SIGKILL, no farewell: metrics reach further than the checkpoint, be it the one of the start."""
    saved, logged = {"every_updates": 2, "keep": 100}, {"histograms": True, "every_updates": 1}
    config = small_config(env={"id": "Catch"}, total_env_steps=160, checkpoint=saved, logging=logged)
    whole = tmp_path / "whole"
    train(config, whole)
    for surviving in (1, 2):
        killed = tmp_path / str(surviving)
        train(config, killed, progress=StopAfter(3))
        for late in step_files(killed / "checkpoints")[surviving:]:
            late.unlink()
        assert metrics(killed)[-1]["env_steps"] == 96
        with (killed / "metrics.jsonl").open("a") as file:
            file.write('{"env_steps": 4')  # half a line
        train(config, killed, resume=True)
        assert_same_bits(whole, killed)
        assert scalars(killed) == scalars(whole)
        assert sum(tag == "config" for _, tag, *_ in scalars(killed)) == 1


FEW = {"algorithm.learning_starts": 64, "algorithm.gradient_steps": 1, "algorithm.batch_size": 8}  # a second, not ten


@pytest.mark.parametrize(("preset", "more", "steps"), [("catch", {}, 256), ("catch-dqn", FEW, 128)])
def test_a_longer_run_that_is_killed_before_it_saves_is_resumed_to_its_new_length(tmp_path, preset, more, steps):
    class Copy(Callback):
        def on_update(self, moment):
            if not killed.exists():  # what a kill leaves
                shutil.copytree(whole, killed)

    killed, whole = tmp_path / "killed", tmp_path / "whole"
    config, _ = load_config(config=preset, overrides={"total_env_steps": steps, "runtime.mode": "eager", **more})
    longer = changed(config, {"total_env_steps": 2 * steps})
    train(config, whole)
    train(longer, whole, resume=True, callbacks=[Copy()])
    kept = read_checkpoint(step_files(killed / "checkpoints")[-1]).config
    assert kept == longer
    train(kept, killed, resume=True)
    assert_same_bits(whole, killed)


class StopAfter(Progress):
    """A view that asks the run to stop, as Ctrl-C does, when it is shown update n."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def show(self, record, counters):
        if record.updates >= self.updates:
            os.kill(os.getpid(), signal.SIGINT)


def test_an_existing_folder_is_never_overwritten(run_dir):
    run_dir.mkdir()
    (run_dir / "thesis.txt").write_text("mine")
    (run_dir / ".config.yaml.tmp").write_text("of a killed start")
    with pytest.raises(UserError, match="holds other files"):
        train(small_config(), run_dir)
    (run_dir / "thesis.txt").unlink()
    train(small_config(env={"id": "Catch"}, total_env_steps=32), run_dir)


def test_a_mistake_leaves_no_folder_behind(run_dir):
    with pytest.raises(UserError, match="Pong"):
        train(small_config(env={"id": "Pongg"}), run_dir)
    assert not run_dir.exists()


def test_resuming_a_finished_run_does_nothing(run_dir):
    config = small_config(env={"id": "Catch"}, total_env_steps=64)
    train(config, run_dir)
    before = metrics(run_dir)
    summary = train(config, run_dir, resume=True)
    assert summary.counters.env_steps == 64
    assert metrics(run_dir) == before
    longer = config.model_copy(update={"total_env_steps": 128})
    assert train(longer, run_dir, resume=True).counters.env_steps == 128


def test_an_edited_config_yaml_is_told_of_and_written_again(run_dir):
    config, told = small_config(env={"id": "Catch"}, total_env_steps=32), []
    train(config, run_dir)
    file = run_dir / "config.yaml"
    written = file.read_text()
    longer = config.model_copy(update={"total_env_steps": 64})
    train(longer, run_dir, resume=True, warn=told.append)
    assert told == []
    file.write_text(written.replace("gamma: 0.99", "gamma: 0.5"))
    train(longer, run_dir, resume=True, warn=told.append)
    assert len(told) == 1
    assert "config.yaml was edited (algorithm.gamma), which changes nothing" in told.pop()
    assert "gamma: 0.99" in file.read_text()
    file.unlink()  # an incident's folder has none
    train(longer, run_dir, resume=True, warn=told.append)
    assert told == []
    file.unlink()
    file.symlink_to("x" * 300)
    train(longer, run_dir, resume=True, warn=told.append)
    assert f"{file} cannot be read" in told.pop()
    for odd in ("[1, 2]", "env: 3", "algorithm: {gamma: {x: 1}}", "\x00", "schema: 92", written + "1: .nan"):
        file.write_text(odd)
        train(longer, run_dir, resume=True, warn=told.append)
        assert str(file) in told.pop()
        assert "gamma: 0.99" in file.read_text()


@pytest.mark.integration
def test_it_is_told_where_the_bits_may_be_others(run_dir, monkeypatch):
    config, told = small_config(env={"id": "Catch"}, total_env_steps=32, logging={"trackers": []}), []

    def go_on(updates: int) -> list[str]:
        told.clear()
        train(config.model_copy(update={"total_env_steps": 32 * updates}), run_dir, resume=True, warn=told.append)
        return told

    train(config, run_dir)
    there = read_checkpoint(step_files(run_dir / "checkpoints")[-1]).meta["machine"]
    assert go_on(2) == []
    for module in ("checkpoint", "training"):
        monkeypatch.setattr(f"a2c.run.{module}.machine", lambda parts: f"another in {parts}")
    assert go_on(2) == []  # there is nothing to do
    assert go_on(3) == [
        f"step-000000000064.npz was written on '{there}', and this is 'another in 1': "
        "the run continues, but its bits may be others."
    ]
    assert go_on(4) == []
    monkeypatch.setattr("a2c.run.folder.versions", lambda: {"tensorflow": "1.0"})
    others = "was made with other versions than those here: it continues, but not to the same bits."
    assert go_on(5) == [f"{run_dir} {others}"]


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({}, None),  # of an older version
        ({"machine": "here"}, None),
        ({"machine": None}, "on null,"),
        ({"machine": ["here"]}, "on ['here'],"),
        ({"machine": "\x1b[2J" * 10**5}, "'\\x1b[2J"),
    ],
)
def test_whatever_a_checkpoint_says_of_its_machine_is_one_short_sentence(meta, said):
    told = []
    tell_of_another_machine(Saved(Path("step.npz"), small_config(), meta, {}), "here", told.append)
    assert len(told) == (said is not None)
    for sentence in told:
        assert said in sentence
        assert sentence.isprintable()
        assert len(sentence) < 250


def judged_config(**sections: object) -> Config:
    """5 updates of 32 steps of Catch, judged after 64, 96 and 160: at a checkpoint, at none, and at the end."""
    judged = {"every_env_steps": 45, "episodes": 5}
    sections = {"total_env_steps": 160, "checkpoint": {"every_updates": 2}, "evaluation": judged, **sections}
    return small_config(env={"id": "Catch"}, **sections)


def test_evaluations_beside_a_run_are_in_its_logs_and_change_none_of_its_bits(judged, tmp_path):
    train(judged_config(evaluation={}), tmp_path / "plain")
    assert [line["env_steps"] for line in read_lines(judged / "evaluations.jsonl")] == [64, 96, 160]
    assert timeless_metrics(judged) == timeless_metrics(tmp_path / "plain")
    first, second = final_arrays(judged), final_arrays(tmp_path / "plain")
    assert all(first[key].tobytes() == array.tobytes() for key, array in second.items())
    written = read_lines(judged / "evaluations.jsonl")
    assert evaluation_scalars(judged) == [(one["env_steps"], np.float32(one["mean"])) for one in written]


@pytest.mark.parametrize("at", [pytest.param(64, marks=pytest.mark.integration), 160])
def test_an_evaluation_that_a_signal_cuts_short_is_made_up_for(judged, tmp_path, at):
    """Be it the last one, after which nothing is trained; those of before are neither lost nor repeated."""
    config = judged_config()
    cut = tmp_path / "cut"
    summary = train(config, cut, progress=StopInEvaluation(at))
    assert summary.signal == signal.SIGINT
    assert summary.counters.env_steps == at
    assert at not in [line["env_steps"] for line in read_lines(cut / "evaluations.jsonl")]
    assert train(config, cut, resume=True).signal is None
    made_up = (cut / "evaluations.jsonl").read_text().replace(str(cut), str(judged))
    assert made_up == (judged / "evaluations.jsonl").read_text()
    assert evaluation_scalars(cut) == evaluation_scalars(judged)
    assert evaluation_videos(cut) == evaluation_videos(judged)
    assert train(config, cut, resume=True).evaluation is None
    assert evaluation_scalars(cut) == evaluation_scalars(judged)  # behind the mark of a session's start


def test_an_evaluation_beyond_the_checkpoint_is_cut_off(judged, tmp_path):
    """Killed behind an evaluation that no checkpoint knows of, be it at the checkpoint's own step."""
    config = judged_config()
    killed = tmp_path / "killed"
    train(config, killed, progress=StopInEvaluation(64))
    (killed / "evaluations.jsonl").write_text((judged / "evaluations.jsonl").read_text()[:-20])
    writer = TensorBoardWriter(killed, config, env_steps=64, evaluated=0)
    writer.write(64, {"evaluation/mean": 9.0})
    writer.write_image(64, "evaluation/game", b"of then", 1, 1)
    writer.close()
    train(config, killed, resume=True)
    assert [line["env_steps"] for line in read_lines(killed / "evaluations.jsonl")] == [64, 96, 160]
    assert evaluation_scalars(killed) == evaluation_scalars(judged)
    assert evaluation_videos(killed) == evaluation_videos(judged)


@pytest.mark.parametrize(
    ("env_id", "model", "video"),
    [
        ("Catch", {}, False),
        ("Chain", {"name": "mlp"}, True),  # it has no pictures
    ],
)
def test_no_games_are_shown_without_pictures_or_where_they_are_not_wanted(run_dir, env_id, model, video):
    judged = {"every_env_steps": 32, "episodes": 1, "video": video}
    train(small_config(env={"id": env_id}, model=model, total_env_steps=64, evaluation=judged), run_dir)
    assert len(evaluation_scalars(run_dir)) == 2
    assert evaluation_videos(run_dir) == []


def test_tensorboard_shows_the_median_game_of_each_evaluation(judged):
    videos = evaluation_videos(judged)
    assert [step for step, _ in videos] == [64, 96, 160]
    for _, image in videos:
        with Image.open(io.BytesIO(image.encoded_image_string)) as gif:
            assert gif.format == "GIF"
            assert gif.size == (image.width, image.height) == (192, 192)
            assert gif.n_frames == 11  # of one ball
            assert gif.info["duration"] == 120  # milliseconds: 8 frames a second, in the GIF's hundredths


def evaluation_scalars(run_dir) -> list[tuple[int, float]]:
    """Every mean in the event files, oldest first, with nothing hidden."""
    return [(step, value.simple_value) for step, value in evaluation_values(run_dir, "evaluation/mean")]


def evaluation_videos(run_dir) -> list[tuple[int, Any]]:
    return [(step, value.image) for step, value in evaluation_values(run_dir, "evaluation/game")]


def evaluation_values(run_dir, tag) -> list[tuple[int, Any]]:
    return [
        (event.step, value)
        for file in sorted(run_dir.glob("events*"))
        for event in summary_iterator(str(file))
        for value in event.summary.value
        if value.tag == tag
    ]


@pytest.mark.integration
def test_memory_does_not_grow_with_updates(run_dir):
    """A leak of one trajectory (3.6 MB) an update would be 180 MB here."""
    env = {"id": "Catch", "screen_size": 84, "num_envs": 8}
    model = {"conv_layers": [[4, 8, 8]]}
    config = small_config(
        env=env,
        model=model,
        algorithm={"rollout_length": 16},
        total_env_steps=128 * 10,
        logging={"trackers": []},
        runtime=GRAPH,
    )
    train(config, run_dir)
    before = memory("VmRSS")
    train(config.model_copy(update={"total_env_steps": 128 * 60}), run_dir, resume=True)
    grown = memory("VmRSS") - before
    assert grown < 60_000, f"{grown} KiB"


def test_seconds_go_on_counting(run_dir):
    config = small_config(env={"id": "Catch"}, total_env_steps=128)
    started = time.perf_counter()
    train(config, run_dir, progress=StopAfter(2))
    train(config, run_dir, resume=True)
    seconds = [line["seconds"] for line in metrics(run_dir)]
    assert seconds == sorted(seconds)
    assert 0 < seconds[-1] < time.perf_counter() - started


@pytest.mark.integration
def test_two_trainers_do_not_meet_in_one_folder(run_cli, run_dir):
    """A second process is refused while the first trains, and goes on where the first was killed."""
    command = [sys.executable, "-m", "a2c", "train", "--env", "Bandit", "--steps", "100000000", "--quiet"]
    first = subprocess.Popen([*command, "--run-dir", str(run_dir)])
    wait_for((run_dir / "metrics.jsonl").exists, first)
    second = run_cli("resume", run_dir)
    assert (second.returncode, second.stderr) == (
        2,
        f"a2c: Another process (number {first.pid} on {socket.gethostname()}) works in {run_dir}; wait for it, or stop "
        "it.\n",
    )
    assert first.poll() is None
    first.kill()
    first.wait()
    steps = steps_of(step_files(run_dir / "checkpoints")[-1])
    assert run_cli("resume", run_dir, "--steps", steps + 1600, "--quiet").returncode == 0
