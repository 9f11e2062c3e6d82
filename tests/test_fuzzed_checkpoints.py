"""Checkpoints and run folders of a stranger: mutated in every way, they end in one sentence or in a run."""

import copy
import json
import resource
import shutil
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import packed, read_lines, rewritten, small_config

from a2c.algorithms.algorithm import build_algorithm
from a2c.config import Config, UserError, build_config
from a2c.data.collector import build_collector
from a2c.envs import make_vec_env
from a2c.evaluation.evaluate import evaluate
from a2c.export.export import export_bundle
from a2c.run.archive import read_archive, write_archive
from a2c.run.bundle import read_bundle
from a2c.run.checkpoint import Checkpoints, Saved, read_checkpoint
from a2c.run.counters import Counters
from a2c.run.step_files import step_files
from a2c.run.training import train

PATIENCE = 60  # seconds for one file: more is a hang
ROOM = 1_000_000  # KiB that may be taken besides
WORDS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**31,
    2**63,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "Pong",
    "os:system",
]
WORDS += ["\x00", "x" * 10_000, "../../etc/passwd", [], {}, [[[]]], [1] * 1000, {"a": {"b": []}}]
DTYPES = ["?", "u1", "i1", "i4", "i8", "u8", "f2", "f4", "f8", ">f4", "c8", "U3", "S3", "M8[s]"]


def config() -> Config:
    return small_config(
        env={"id": "Chain"},
        model={"name": "mlp", "hidden_sizes": [4]},
        total_env_steps=320,
        evaluation={"episodes": 2, "every_env_steps": 100},
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fuzzed") / "run"
    train(config(), folder)
    return folder


@pytest.fixture(autouse=True)
def nothing_is_executed(tmp_path, monkeypatch):
    """Whatever a file would have us run would do it here."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert list(Path.cwd().iterdir()) == []


@contextmanager
def patience():
    def lose(*_: object) -> None:
        raise AssertionError(f"it takes more than {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, lose)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def outcome(act, *arguments: object) -> str:
    """What a user would see: `fine`, or the beginning of the one sentence."""
    with patience():
        try:
            act(*arguments)
        except UserError as error:
            assert len(str(error).splitlines()) == 1, error
            assert len(str(error)) < 1500, error
            return "refused"
    return "fine"


# --- the mutations ---------------------------------------------------------------------------------------------------


def mutated_bytes(rng: np.random.Generator, content: bytes) -> bytes:
    """Bits flipped, pieces cut out, doubled, moved, blanked, replaced; at one to three places."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        place, length = int(rng.integers(len(data) + 1)), int(rng.integers(1, 200))
        piece = data[place : place + length]
        match rng.integers(6):
            case 0 if place < len(data):
                data[place] ^= 1 << rng.integers(8)
            case 1:
                del data[place : place + length]
            case 2:
                data[place:place] = piece
            case 3:
                data[place : place + length] = bytes(len(piece))
            case 4:
                data[place : place + length] = rng.bytes(length)
            case _:
                del data[place:]
    return bytes(data)


def mutated_value(rng: np.random.Generator, value: object) -> object:
    """One place of nested values becomes another, is dropped, or gets a neighbour."""
    value = copy.deepcopy(value)
    parent, key = None, None
    here = value
    while isinstance(here, dict | list) and here and (parent is None or rng.random() < 0.8):
        keys = list(here) if isinstance(here, dict) else range(len(here))
        parent, key = here, keys[int(rng.integers(len(keys)))]
        here = parent[key]
    word = WORDS[int(rng.integers(len(WORDS)))]
    match rng.integers(4):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent["more"] = word
        case 2 if isinstance(here, int | float) and not isinstance(here, bool):
            parent[key] = [here + 1, -here, here * 10**6, here + 0.5, str(here)][int(rng.integers(5))]
        case _:
            parent[key] = word
    return value


def mutated_array(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Another type, shape, size or other numbers."""
    match rng.integers(6):
        case 0:
            with np.errstate(all="ignore"):
                return array.astype(DTYPES[int(rng.integers(len(DTYPES)))])
        case 1:
            return array[None]
        case 2:
            return np.concatenate([array.reshape(-1)] * 2)
        case 3:
            return array.reshape(-1)[: array.size // 2]
        case 4:
            return np.full_like(array, rng.choice([0, 1, 100]))
        case _:
            other = array.copy().reshape(-1)
            if other.size:
                raw = other.view(np.uint8)
                raw[rng.integers(raw.size)] ^= 1 << rng.integers(8)
            return other.reshape(array.shape)


def mutated_arrays(rng: np.random.Generator, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `write_archive` is to seal: a file that is whole, and says something else."""
    arrays = dict(arrays)
    names = list(arrays)
    name = names[int(rng.integers(len(names)))]
    match rng.integers(6):
        case 0:
            del arrays[name]
        case 1:
            arrays[name + "x"] = arrays.pop(name)
        case 2 | 3:
            meta = mutated_value(rng, json.loads(arrays["meta"].tobytes()))
            arrays["meta"] = packed(meta)
        case _:
            arrays[name] = mutated_array(rng, arrays[name])
    return arrays


# --- what is done with them ------------------------------------------------------------------------------------------


class Trainer:
    """One algorithm and collector, into which checkpoint after checkpoint is restored."""

    def __init__(self, folder: Path) -> None:
        self.config = config()
        self.envs = make_vec_env(self.config.env, seed=0)
        algorithm = build_algorithm(self.config, self.envs.observation_space, self.envs.num_actions)
        self.collector = build_collector(self.config, self.envs, algorithm.policy)
        self.checkpoints = Checkpoints(
            folder, self.config, algorithm=algorithm, collector=self.collector, counters=Counters()
        )

    def use(self, file: Path) -> None:
        """Go on from a file with its own configuration, or judge one of another."""
        saved: Saved = read_checkpoint(file)
        if saved.config == self.config:
            self.checkpoints.restore(saved)
            self.collector.collect()
        else:
            evaluate(file, episodes=1)


def fuzz_files(run: Path, tmp_path: Path, *, raw: int, sealed: int, seed: int) -> Counter[str]:
    original = step_files(run / "checkpoints")[-1]
    content, arrays = original.read_bytes(), read_archive(original)
    trainer = Trainer(tmp_path)
    file = tmp_path / original.name
    seen: Counter[str] = Counter()
    rng = np.random.default_rng(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(raw):
        file.write_bytes(mutated_bytes(rng, content))
        result = outcome(read_checkpoint, file)
        assert result == "refused" or file.read_bytes() == content, "a changed file was taken for whole"
        seen[f"raw {result}"] += 1
    for _ in range(sealed):
        try:
            write_archive(file, mutated_arrays(rng, arrays))
        except ValueError:  # NumPy has no such file
            continue
        seen["sealed " + outcome(trainer.use, file)] += 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM
    assert original.read_bytes() == content
    return seen


def fuzz_folders(run: Path, tmp_path: Path, *, folders: int, seed: int) -> Counter[str]:
    """Half of a run's files at once, so that it mostly goes on, or all of them."""
    rng = np.random.default_rng(seed)
    seen: Counter[str] = Counter()
    for number in range(folders):
        folder = tmp_path / f"run-{number}"
        shutil.copytree(run, folder)
        share = rng.choice([0.5, 1])
        for file in folder.rglob("*"):
            if file.is_file() and rng.random() < share:
                file.write_bytes(mutated_bytes(rng, file.read_bytes()))
        longer = config().model_copy(update={"total_env_steps": 384})
        seen[outcome(lambda f=folder, c=longer: train(c, f, resume=True))] += 1
        if any(b"384" in file.name.encode() for file in step_files(folder / "checkpoints")):
            rows = read_lines(folder / "metrics.jsonl")
            assert rows[-1]["env_steps"] == 384
        shutil.rmtree(folder)
    return seen


@pytest.mark.integration
def test_a_sample_of_mutated_checkpoints_does_no_harm(run, tmp_path):
    seen = fuzz_files(run, tmp_path, raw=200, sealed=90, seed=0)
    assert seen["raw refused"] >= 195  # the rest cut nothing
    assert seen["sealed refused"] > 40
    assert seen["sealed fine"] > 5  # other numbers in the right places are a checkpoint like any other


def test_a_sample_of_mutated_bundles_does_no_harm(run, tmp_path):
    bundle, mutated, again = (tmp_path / f"{name}.a2c" for name in ("bundle", "mutated", "again"))
    export_bundle(run, out=bundle)
    content, arrays = bundle.read_bytes(), read_archive(bundle)
    rng, seen = np.random.default_rng(0), Counter()
    for _ in range(60):
        mutated.write_bytes(mutated_bytes(rng, content))
        result = outcome(read_bundle, mutated)
        assert result == "refused" or mutated.read_bytes() == content, "a changed file was taken for whole"
    for _ in range(60):
        try:
            write_archive(mutated, mutated_arrays(rng, arrays))
        except ValueError:  # NumPy has no such file
            continue
        seen[outcome(lambda: export_bundle(mutated, out=again))] += 1
    assert seen["refused"] > 30
    assert seen["fine"] > 5  # its new bundle is read again
    assert read_bundle(again).arrays.keys() == read_bundle(bundle).arrays.keys()


@pytest.mark.integration
def test_a_sample_of_mutated_run_folders_does_no_harm(run, tmp_path):
    seen = fuzz_folders(run, tmp_path, folders=8, seed=0)
    assert seen["fine"] and seen["refused"]


@pytest.mark.slow
def test_ten_thousand_mutated_checkpoints_do_no_harm(run, tmp_path, capsys):
    seen = fuzz_files(run, tmp_path, raw=6000, sealed=4000, seed=1)
    seen += fuzz_folders(run, tmp_path, folders=300, seed=1)
    with capsys.disabled():
        print("\n" + ", ".join(f"{what}: {count:,}" for what, count in sorted(seen.items())))


def test_a_network_larger_than_its_file_is_refused_before_memory_is_taken(run, tmp_path):
    """A config in 1 kB may ask for 17 GB of weights."""

    def grown(meta: dict) -> None:
        meta["config"]["model"]["hidden_sizes"] = [20_000, 20_000]
        assert build_config(meta["config"], where="test")

    file = rewritten(step_files(run / "checkpoints")[-1], grown, to=tmp_path / "large.npz")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="does not fit"):
        evaluate(file, episodes=1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_file_that_says_it_is_huge_takes_no_memory(tmp_path, run):
    """An array's header that promises a petabyte, and a sparse file of 100 GB."""
    original = step_files(run / "checkpoints")[-1].read_bytes()
    sparse = tmp_path / "sparse.npz"
    with sparse.open("wb") as file:
        file.write(original)
        file.truncate(100 * 2**30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert outcome(read_checkpoint, sparse) == "refused"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
