"""Experiment trackers: what they hold is read back by their own means, and a run does not depend on them."""

import json
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import PONG_RUN, read_lines, rewritten, small_config
from killing import Session, assert_same_checkpoints

from a2c.config import Config, UserError, dump_config
from a2c.run import follower
from a2c.run.checkpoint import read_checkpoint
from a2c.run.counters import Counters
from a2c.run.follower import Follower, check_installed
from a2c.run.lookup import find_checkpoint
from a2c.run.metrics import EVALUATED, Writers, tensorboard_tags
from a2c.run.step_files import step_files
from a2c.run.trackers import Lines
from a2c.run.training import train

BOTH = ["wandb", "mlflow"]


def config(*trackers: str, **sections: object) -> Config:
    logging, evaluation = {"every_updates": 1, "trackers": trackers}, {"every_env_steps": 100, "episodes": 5}
    return small_config(env={"id": "Catch"}, evaluation=evaluation, logging=logging, **sections)


@pytest.fixture(autouse=True)
def nobody(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has no account anywhere and has set nothing."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # of the reading here
    monkeypatch.setattr(follower, "END_SECONDS", 1000.0)  # on a slow machine


# --- reading back -----------------------------------------------------------------------------------------------------


class Tracked(NamedTuple):
    """A run as a tracker has it."""

    scalars: dict[str, list[tuple[int, float]]]  # by tag: env_steps and value, in the order in which they are there
    config: dict[str, object]
    games: list[bytes]
    checkpoints: list[bytes]


def read_wandb(run: Path) -> Tracked:
    """The one file that `wandb sync` would send."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = (run / "wandb").glob("*run-*/*.wandb")
    scalars: dict[str, list[tuple[int, float]]] = {}
    found: dict[str, object] = {}
    games, checkpoints = [], []
    for record in map(Record.FromString, wandb_records(file.read_bytes())):
        if record.HasField("run"):
            found = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if record.HasField("artifact"):
            checkpoints += [Path(content.local_path).read_bytes() for content in record.artifact.manifest.contents]
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        if path := row.pop("evaluation/game/path", None):
            games.append((file.parent / "files" / path).read_bytes())
        for tag, value in row.items():
            if "/" in tag and not tag.startswith("evaluation/game/"):
                scalars.setdefault(tag, []).append((row["env_steps"], value))
    return Tracked(scalars, found, games, checkpoints)


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format, in blocks of 32 KiB, after 7 bytes that name it."""
    assert data.startswith(b":W&B")
    at, record = 7, b""
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)  # after a checksum
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def read_mlflow(run: Path) -> Tracked:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run.parent / '.mlflow/mlflow.db'}")
    experiment = client.get_experiment_by_name("a2c").experiment_id
    (found,) = (one for one in client.search_runs([experiment]) if one.info.run_name == run.name)
    scalars = {
        tag: [(point.step, point.value) for point in client.get_metric_history(found.info.run_id, tag)]
        for tag in found.data.metrics
    }
    files = {
        folder: [Path(client.download_artifacts(found.info.run_id, file.path)).read_bytes() for file in inside]
        for folder in ("videos", "checkpoint")
        if (inside := client.list_artifacts(found.info.run_id, folder))
    }
    assert found.info.status == ("FINISHED" if "checkpoint" in files else "KILLED")
    return Tracked(scalars, found.data.params, files.get("videos", []), files.get("checkpoint", []))


READERS: dict[str, Callable[[Path], Tracked]] = {"wandb": read_wandb, "mlflow": read_mlflow}


def expected(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What a tracker should hold, by the run's own files."""
    scalars: dict[str, list[tuple[int, float]]] = {}
    evaluated = {name: f"evaluation/{name}" for name in EVALUATED}
    tags = tensorboard_tags(find_checkpoint(run).config.algorithm)
    for name, named in (("metrics.jsonl", tags), ("evaluations.jsonl", evaluated)):
        for line in read_lines(run / name):
            for key, tag in named.items():
                if line[key] is not None:
                    scalars.setdefault(tag, []).append((line["env_steps"], line[key]))
    return scalars


def without_times(scalars: dict[str, list[tuple[int, float]]]) -> dict[str, list[tuple[int, float]]]:
    return {tag: points for tag, points in scalars.items() if tag not in ("time/seconds", "time/steps_per_second")}


# --- what is tracked --------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_trackers_hold_the_numbers_the_games_and_the_checkpoint_of_a_run(tmp_path):
    """Without a login: all of it in the run's folder and beside it. The bits are those of a run without trackers."""
    warnings: list[str] = []
    train(config("tensorboard", *BOTH), tmp_path / "run", warn=warnings.append)
    train(config(), tmp_path / "plain")
    assert warnings == []
    assert_same_checkpoints(tmp_path / "run/checkpoints", tmp_path / "plain/checkpoints")
    last = step_files(tmp_path / "run/checkpoints")[-1].read_bytes()
    games = [file.read_bytes() for file in sorted((tmp_path / "run/videos").iterdir())]
    assert len(games) == len(read_lines(tmp_path / "run/evaluations.jsonl")) == 3
    for read in READERS.values():
        tracked = read(tmp_path / "run")
        assert tracked.scalars == expected(tmp_path / "run")
        assert tracked.games == games
        assert tracked.checkpoints == [last]
    stored = dump_config(config("tensorboard", *BOTH))
    assert {key: value for key, value in read_wandb(tmp_path / "run").config.items() if key in stored} == stored
    assert read_mlflow(tmp_path / "run").config["optimizer.learning_rate"] == "0.0007"
    assert not (tmp_path / "plain/videos").exists()


@pytest.mark.integration
@pytest.mark.parametrize("name", BOTH)
def test_a_killed_run_is_resumed_in_the_same_tracked_run_without_double_or_missing_points(tmp_path, name):
    """It is killed when the tracker has points beyond the checkpoint, which is that of the start."""
    arguments = ["--env", "Catch", "--set", f"logging.trackers=[{name}]", "--set", "logging.every_updates=20"]
    arguments += ["--set", "evaluation.every_env_steps=20000", "--set", "evaluation.episodes=5"]
    arguments += ["--set", "checkpoint.every_updates=1000000000", "--set", "checkpoint.every_minutes=0"]
    run = tmp_path / "run"

    def sent() -> int:
        if name == "wandb":
            return sum(file.stat().st_size for file in run.glob("wandb/*run-*/*.wandb"))
        with (
            suppress(sqlite3.Error),
            sqlite3.connect(f"file:{tmp_path}/.mlflow/mlflow.db?mode=ro", uri=True) as database,
        ):
            return database.execute("select max(step) from metrics where key like 'evaluation/%'").fetchone()[0] or 0
        return 0

    with Session(run, [*arguments, "--steps", "1000000000"]) as session:
        session.wait_for(lambda: sent() > 0, pause=0.2)
        killed = session.kill()
    assert killed.checkpoint == 0
    with Session(run, [*arguments, "--steps", str(killed.env_steps + 20_000)]) as session:
        session.finish()
    assert without_times(READERS[name](run).scalars) == without_times(expected(run))


@pytest.mark.integration
def test_a_finished_run_is_sent_to_trackers_that_are_named_later(tmp_path):
    train(config(), tmp_path / "run")
    train(config(*BOTH), tmp_path / "run", resume=True)
    for read in READERS.values():
        assert read(tmp_path / "run").scalars == expected(tmp_path / "run")


# --- what fails -------------------------------------------------------------------------------------------------------

BROKEN = {"wandb": ("WANDB_MODE", "nonsense"), "mlflow": ("MLFLOW_TRACKING_URI", "sqlite:////dev/null/mlflow.db")}


@pytest.mark.integration
def test_trackers_that_fail_are_told_once_change_nothing_and_are_made_up_for(tmp_path, monkeypatch):
    warnings: list[str] = []
    with monkeypatch.context() as broken:
        for name, value in BROKEN.values():
            broken.setenv(name, value)
        train(config(*BOTH), tmp_path / "run", warn=warnings.append)
    train(config(), tmp_path / "plain")
    assert_same_checkpoints(tmp_path / "run/checkpoints", tmp_path / "plain/checkpoints")
    assert len(warnings) == 2
    for name, warning in zip(BOTH, warnings, strict=True):
        assert warning.startswith(f"logging.trackers: {name} gets no more of this session (")
        assert "Error" in warning
    train(config(*BOTH), tmp_path / "run", resume=True, warn=warnings.append)
    assert len(warnings) == 2
    for read in READERS.values():
        assert read(tmp_path / "run").scalars == expected(tmp_path / "run")


@pytest.mark.integration
def test_a_server_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    warnings: list[str] = []
    monkeypatch.setattr(follower, "END_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setenv("WANDB_BASE_URL", address)
        monkeypatch.setenv("WANDB_API_KEY", 40 * "0")
        train(config(*BOTH), tmp_path / "run", warn=warnings.append)
    assert [
        f"{name} gets no more of this session (it is not ready after 1 seconds)" in warning
        for name, warning in zip(BOTH, warnings, strict=True)
    ] == [True, True]
    assert len(read_lines(tmp_path / "run/metrics.jsonl")) == 10


@pytest.mark.integration
def test_a_tracker_that_ends_is_noticed_once(tmp_path, monkeypatch):
    monkeypatch.setenv(*BROKEN["wandb"])
    warnings: list[str] = []
    one = Follower("wandb", tmp_path, config("wandb"), {}, {}, warnings.append)
    one.check()
    assert warnings == []
    assert one.process is not None
    assert one.process.wait(60) == 1
    one.check()
    assert len(warnings) == 1
    one.check()
    one.finish()
    assert len(warnings) == 1


def test_a_second_ctrl_c_ends_the_trackers_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt), Writers(tmp_path, config("wandb"), Counters(), pytest.fail) as writers:
        (tracker,) = (each.process for each in writers.followers)
        raise KeyboardInterrupt
    assert tracker.poll() == -signal.SIGKILL


def test_a_missing_package_is_told_before_anything_is_made(run_cli, tmp_path, monkeypatch):
    for name in BOTH:
        monkeypatch.setitem(sys.modules, name, None)  # its import fails
        ended = run_cli("train", "--env", "Catch", "--set", f"logging.trackers=[{name}]", cwd=tmp_path)
        assert ended.returncode == 2
        said = f"a2c: logging.trackers has {name}, which is not installed: pip install 'a2c[{name}]'.\n"
        assert ended.stderr == said
        with pytest.raises(UserError, match="pip install"):
            train(config(name), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_has_the_name_of_a_package_is_none(tmp_path, monkeypatch):
    """W&B makes one in the folder in which it is used."""
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(UserError, match="not installed"):
        check_installed(config("wandb"))


def test_a_run_without_trackers_imports_none(tmp_path, monkeypatch):
    for name in (*BOTH, "a2c.run.trackers"):
        monkeypatch.setitem(sys.modules, name, None)  # its import fails
    train(config("tensorboard", total_env_steps=32), tmp_path / "run")


@pytest.mark.integration
def test_the_process_of_a_run_imports_no_tracker_and_nothing_that_comes_with_them(tmp_path):
    """Keras imports pandas if it finds it, which MLflow brings."""
    words = ["train", "--env", "Catch", "--steps", "256", "--quiet", "--run-dir", str(tmp_path / "run")]
    code = f"""
import sys
from a2c.cli import main
from a2c.run import follower
follower.END_SECONDS = 1000
sys.argv[1:] = {[*words, "--set", "logging.trackers=[tensorboard,wandb]"]}
try:
    main()
except SystemExit as end:
    assert not end.code
assert "tensorboard" in sys.modules
assert not {{"wandb", "mlflow", "pandas", "a2c.run.trackers"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_lines_are_read_once_when_they_are_whole(tmp_path):
    lines = Lines(tmp_path, {"entropy": "losses/entropy"}, of_evaluation=False)
    read = []
    for text in (
        '{"env_steps": 1, "entropy": 0.5}\n{"env_steps": 2, "ent',
        'ropy": 0.25}\nno line\n',
        "",
        '{"env_steps": 3}\n',
    ):
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write(text)
        read.append([(point.env_steps, point.scalars) for point in lines.new()])
    assert read == [[(1, {"losses/entropy": 0.5})], [(2, {"losses/entropy": 0.25})], [], [(3, {})]]


# --- earlier runs -----------------------------------------------------------------------------------------------------


def test_runs_of_before_the_list_are_read_and_resumed(tmp_path):
    """They have a truth value, `tensorboard`, in its place."""
    assert "tensorboard: true" in (PONG_RUN / "config.yaml").read_text()
    assert find_checkpoint(PONG_RUN).config.logging.trackers == ("tensorboard",)
    run = tmp_path / "run"
    train(config(total_env_steps=64), run)
    (file,) = (path for path in step_files(run / "checkpoints") if "064" in path.name)

    def as_before(meta: dict) -> None:
        del meta["config"]["logging"]["trackers"]
        meta["config"]["logging"]["tensorboard"] = False

    rewritten(file, as_before)
    assert read_checkpoint(file).config.logging.trackers == ()
    train(config(total_env_steps=128), run, resume=True)
    assert read_checkpoint(step_files(run / "checkpoints")[-1]).env_steps == 128
