"""The files of an algorithm's memory: what checkpoints need is there, and nothing else."""

import os
import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from conftest import memory_for

from a2c.config import Config, UserError, build_config
from a2c.envs.toy import Catch
from a2c.run.archive import LARGEST_WITH_HOLES, read_archive, write_archive
from a2c.run.checkpoint import read_checkpoint
from a2c.run.segments import FOLDER, LARGEST_SEGMENT, Segments
from a2c.run.step_files import step_files
from a2c.run.training import train


class Numbers:
    """A memory of numbers, of which the latest 10 are needed."""

    row_bytes = 8

    def __init__(self) -> None:
        self.values = np.zeros(0, np.int64)

    @property
    def total(self) -> int:
        return len(self.values)

    @property
    def first(self) -> int:
        return max(0, self.total - 10)

    def add(self, number: int) -> None:
        self.values = np.concatenate([self.values, np.arange(number) ** 2 + self.total])

    def state(self) -> dict[str, np.ndarray]:
        return {"total": np.array(self.total)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.values = np.full(int(state["total"]), -1, np.int64)

    def read(self, first: int, end: int) -> dict[str, np.ndarray]:
        assert first >= self.first
        return {"values": self.values[first:end]}

    def write(self, first: int, end: int, rows: dict[str, np.ndarray]) -> None:
        self.values[first:end] = rows["values"]


@pytest.mark.parametrize(
    ("method", "answer", "told"),
    [
        ("state", lambda: 1 / 0, r"saved: ZeroDivisionError: division by zero \(test_segments.py, line \d+\)\.$"),
        ("state", lambda: [1], r"saved: TypeError: `state` returned a list; return a dict of arrays\.$"),
        ("state", lambda: {"x": [None]}, r"saved: TypeError: `state` returned 'x' as object; return arrays of numbers"),
        (
            "read",
            lambda first, end: {"values": np.arange(end - first - 1)},
            r"saved: ValueError: no array .* has 4 rows",
        ),
        ("write", lambda first, end, rows: rows.nothing, r"restored: AttributeError: .* \(test_segments.py, line"),
        ("restore", lambda state: state["nothing"], r"restored: KeyError: 'nothing' \(test_segments.py, line"),
    ],
)
def test_a_memory_of_ones_own_that_fails_is_told(tmp_path, method, answer, told):
    memory = Numbers()
    memory.add(4)
    segments = Segments(tmp_path, memory, "mine:Mine")
    if method in ("write", "restore"):
        state, saved = segments.state(), segments.save("step-1")
    setattr(memory, method, answer)
    with pytest.raises(UserError, match=f"^mine:Mine: its memory cannot be {told}"):
        if method in ("write", "restore"):
            segments.restore_state(state)
            segments.restore(saved)
        else:
            segments.save("step-1")
            segments.state()


def names(run_dir: Path) -> list[str]:
    return sorted(file.name for file in (run_dir / FOLDER).iterdir())


def restored(run_dir: Path, saved: dict[str, np.ndarray]) -> tuple[Numbers, Segments]:
    memory = Numbers()
    memory.restore({"total": saved["rows"][-1, 1]})
    segments = Segments(run_dir, memory)
    segments.restore(saved)
    return memory, segments


def test_each_checkpoint_finds_its_rows_until_it_is_gone(tmp_path):
    """Also in a later session, which may resume from an earlier checkpoint than the last."""
    memory = Numbers()
    segments, kept = Segments(tmp_path, memory), {}
    for number in range(12):
        if number == 7:  # resumed from the last but one: the last was damaged
            kept.popitem()
            memory, segments = restored(tmp_path, list(kept.values())[-1])
            segments.clean(kept)
        memory.add([4, 3, 25, 0][number % 4])
        kept[f"step-{number}"] = segments.save(f"step-{number}")
        if len(kept) > 3:
            kept.pop(next(iter(kept)))
        segments.clean(kept)
        for saved in kept.values():
            if len(saved["rows"]):
                again, _ = restored(tmp_path, saved)
                np.testing.assert_array_equal(again.values[again.first :], memory.values[again.first : again.total])
    assert set(names(tmp_path)) == {
        f"rows-{first:012d}-{end:012d}.npz" for saved in kept.values() for first, end in saved["rows"]
    }


def test_sessions_of_one_checkpoint_each_leave_no_files_that_none_needs(tmp_path):
    kept, memory, segments = {}, Numbers(), None
    for number in range(8):
        if kept:
            memory, segments = restored(tmp_path, list(kept.values())[-1])
        segments = segments or Segments(tmp_path, memory)
        memory.add(6)
        kept[f"step-{number}"] = segments.save(f"step-{number}")
        if len(kept) > 2:
            kept.pop(next(iter(kept)))
        segments.clean(kept)
    assert set(names(tmp_path)) == {
        f"rows-{first:012d}-{end:012d}.npz" for saved in kept.values() for first, end in saved["rows"]
    }


def test_what_a_kill_left_is_removed(tmp_path):
    memory = Numbers()
    memory.add(5)
    segments = Segments(tmp_path, memory)
    saved = segments.save("step-1")
    memory.add(5)
    segments.save("step-2")  # and killed before that checkpoint was there
    (tmp_path / FOLDER / ".rows-000000000010-000000000012.npz.tmp").write_bytes(b"half")
    (tmp_path / FOLDER / "notes.txt").write_text("mine")
    _, again = restored(tmp_path, saved)
    again.clean(["step-1"])
    assert names(tmp_path) == ["notes.txt", "rows-000000000000-000000000005.npz"]


def test_a_long_memory_is_cut_into_files(tmp_path, monkeypatch):
    monkeypatch.setattr("a2c.run.segments.LARGEST_SEGMENT", 3 * 8)
    memory = Numbers()
    memory.add(8)
    saved = Segments(tmp_path, memory).save("step-1")
    assert saved["rows"].tolist() == [[0, 3], [3, 6], [6, 8]]
    again, _ = restored(tmp_path, saved)
    np.testing.assert_array_equal(again.values, memory.values)


@pytest.fixture
def saved(tmp_path) -> dict[str, np.ndarray]:
    memory = Numbers()
    memory.add(5)
    segments = Segments(tmp_path, memory)
    segments.save("step-1")
    memory.add(3)
    return segments.save("step-2")


DAMAGE = {
    "missing": lambda path: path.unlink(),
    "a byte": lambda path: path.write_bytes(path.read_bytes()[:300] + b"x" + path.read_bytes()[301:]),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-70]),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "of another run": lambda path: write_archive(path, {"values": np.zeros(5, np.int64)}),
    "not sealed": lambda path: np.savez(path, values=np.zeros(5, np.int64)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_not_as_written_is_told(tmp_path, saved, damage):
    damage(tmp_path / FOLDER / "rows-000000000000-000000000005.npz")
    with pytest.raises(
        UserError, match=r"cannot be resumed, since what it remembers, in .*memory, is not whole: .+\.$"
    ):
        restored(tmp_path, saved)


def test_rows_too_many_for_the_memory_are_told_as_such(tmp_path, saved):
    file = tmp_path / FOLDER / "rows-000000000000-000000000005.npz"
    write_archive(file, {"values": np.zeros(2**23, np.int64)})
    with memory_for(2**25), pytest.raises(UserError, match=r"in .*memory, is too large for the memory of this machine"):
        restored(tmp_path, saved)


def test_a_full_file_may_look_sparse_on_a_disk_that_compresses():
    """Each row may have a last observation besides its own."""
    assert 2 * LARGEST_SEGMENT <= LARGEST_WITH_HOLES


CONTRADICTIONS = {
    "a file less": lambda s: {name: array[1:] for name, array in s.items()},
    "turned round": lambda s: {name: array[::-1] for name, array in s.items()},
    "a seal less": lambda s: {**s, "seals": s["seals"][1:]},
    "another seal": lambda s: {**s, "seals": s["seals"] ^ 1},
    "no seals": lambda s: {name: array for name, array in s.items() if name != "seals"},
    "no word of what is needed": lambda s: {name: array for name, array in s.items() if name != "needed"},
    "fractions": lambda s: {**s, "rows": s["rows"] / 3},
    "a row of three": lambda s: {**s, "rows": np.array([[0, 8, 8]] * 2)},
    "numbers": lambda s: {**s, "rows": np.array([0, 8])},
    **{
        f"needs {text[:9]!r}": lambda s, text=text: {**s, "needed": np.frombuffer(text, np.uint8)}
        for text in (b"\xff", b"[1]", b"null", b'{"a": null}', b'{"a": 1e999}', b"[" * 100_000)
    },
}


@pytest.mark.parametrize("change", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_list_that_contradicts_its_files_is_told(tmp_path, saved, change):
    memory = Numbers()
    memory.restore({"total": np.array(8)})
    with pytest.raises(UserError, match="is not whole"):
        Segments(tmp_path, memory).restore(change(saved))


def small(updates: int) -> Config:
    """Bandit with a replay of 100 transitions, 16 an update."""
    return build_config(
        {
            "total_env_steps": 16 * updates,
            "env": {"id": "Bandit", "num_envs": 4},
            "model": {"name": "mlp", "hidden_sizes": [4]},
            "algorithm": {"name": "dqn", "learning_starts": 20, "replay_capacity": 100, "prioritised": True},
            "logging": {"trackers": []},
            "checkpoint": {"every_updates": 3},
        },
        where="test",
    )


class SickCatch(Catch):
    """The ball of some seeds is worth infinitely much."""

    def reset(self, *, seed=None, options=None):
        self.infected = seed is not None and seed % 9 == 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward * np.inf if self.infected and reward else reward, *rest


def test_an_incident_has_the_memory_and_can_be_repeated_alone(run_dir, tmp_path):
    """What is infinite is drawn from the replay, some time after it was put there."""
    if "SickCatch-v0" not in gym.registry:
        gym.register("SickCatch-v0", SickCatch)
    config = build_config(
        {
            "total_env_steps": 1_600,
            "env": {"id": "SickCatch-v0", "num_envs": 4},
            "model": {"name": "small", "conv_layers": [[4, 8, 8]]},
            "algorithm": {"name": "dqn", "learning_starts": 20, "replay_capacity": 400, "prioritised": True},
            "logging": {"trackers": []},
            "checkpoint": {"every_updates": 3},
        },
        where="test",
    )
    with pytest.raises(UserError, match=r"^Update \d+ is not finite, first in batch\.rewards") as error:
        train(config, run_dir)
    first = str(error.value).split(",")[0]
    (incident,) = (run_dir / "incidents").iterdir()
    segments = sorted((incident / FOLDER).iterdir())
    assert len(segments) > 1
    assert all(file.samefile(run_dir / FOLDER / file.name) for file in segments)
    alone = incident.rename(tmp_path / "alone")
    shutil.rmtree(run_dir)
    with pytest.raises(UserError, match=first):
        train(config, alone, resume=True)
    (repeated,) = (alone / "incidents").iterdir()
    one, other = (read_archive(folder / "update.npz") for folder in (alone, repeated))
    assert {name: array.tobytes() for name, array in one.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


def test_a_run_keeps_no_more_than_its_checkpoints_need(run_dir):
    """25 rows are sampled from; three checkpoints, 3 updates of 4 rows apart, reach 24 rows further back."""
    train(small(20), run_dir)
    rows = [read_archive(file)["rewards"] for file in sorted((run_dir / FOLDER).iterdir())]
    assert 25 <= sum(map(len, rows)) <= 25 + 24 + 12
    assert len(step_files(run_dir / "checkpoints")) == 3
    latest = read_checkpoint(step_files(run_dir / "checkpoints")[-1])
    assert int(latest.group("memory")["total"]) == latest.group("segments")["rows"][-1, 1] == 80
    train(small(22), run_dir, resume=True)
    max((run_dir / FOLDER).iterdir()).unlink()
    with pytest.raises(UserError, match="memory, is not whole"):
        train(small(23), run_dir, resume=True)
