"""Checkpoints: whole or not at all, the last N and the best, and a sentence for every hostile file."""

import hashlib
import io
import os
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from conftest import PONG_RUN, memory_for, packed, rewritten, small_config

from a2c.algorithms.a2c import A2C
from a2c.algorithms.algorithm import build_algorithm
from a2c.algorithms.sections import A2CSection
from a2c.config import Config, UserError, load_config
from a2c.data.collector import build_collector
from a2c.envs import make_vec_env
from a2c.evaluation.evaluate import evaluate
from a2c.run.archive import DamagedError, read_archive, write_archive
from a2c.run.checkpoint import FORMAT, Checkpoints, read_checkpoint
from a2c.run.counters import Counters
from a2c.run.lookup import find_checkpoint
from a2c.run.step_files import BEST, step_file, step_files
from a2c.run.training import train


def config(**sections: Any) -> Config:
    return small_config(**{"env": {"id": "Catch"}, **sections})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "catch"
    train(config(checkpoint={"every_updates": 2, "keep": 2}), folder)
    return folder


def test_the_last_n_are_kept(trained):
    assert [path.name for path in step_files(trained / "checkpoints")] == [
        "step-000000000256.npz",
        "step-000000000320.npz",
    ]


def test_a_checkpoint_holds_everything(trained):
    saved = find_checkpoint(trained, pytest.fail)
    assert {key.split("/")[0] for key in saved.arrays} == {"model", "optimizer", "collector"}
    assert saved.meta["counters"]["updates"] == 10
    assert saved.config == config(checkpoint={"every_updates": 2, "keep": 2})
    assert saved.meta["versions"]["tensorflow"]
    assert saved.arrays["collector/draws"] == 80
    assert not list(trained.rglob(".*tmp*"))


def test_a_damaged_latest_is_passed_over_with_a_word(trained, tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    good, latest = step_files(trained / "checkpoints")
    (folder / good.name).write_bytes(good.read_bytes())
    (folder / latest.name).write_bytes(latest.read_bytes()[: latest.stat().st_size // 2])
    said = []
    saved = find_checkpoint(tmp_path, said.append)
    assert saved.path.name == good.name
    assert len(said) == 1
    assert latest.name in said[0]
    assert f"the one before is used, {good.name}" in said[0]


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


def npz(**arrays: np.ndarray) -> bytes:
    """Also of objects, which are pickled."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def sealed(content: bytes) -> bytes:
    """By a stranger who knows how it is done; a zip file may have a comment at its end."""
    if content.startswith(b"PK"):
        content = content[:-2] + (11 + 64).to_bytes(2, "little")
    content += b"a2c-sha256:"
    return content + hashlib.sha256(content).hexdigest().encode()


def meta(**values: object) -> np.ndarray:
    return packed(values)


COUNTERS = Counters().state()


class Bomb:
    def __reduce__(self):
        return os.system, ("touch pwned",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it is empty"),
        (b"not a checkpoint", "no checksum"),
        (npz(weights=np.zeros(3)), "no checksum"),
        (npz(meta=meta(format=FORMAT, config={}, counters=COUNTERS)), "no checksum"),
        (sealed(b"not a checkpoint"), "it is no whole zip archive"),
        (sealed(b"PK\x03\x04"), "it is no whole zip archive"),
        (sealed(b"\x93NUMPY"), "it is no whole zip archive"),
        (sealed(npz(meta=np.array(Bomb(), dtype=object))), "it holds an array of object"),
        (sealed(npz(meta=meta(format=FORMAT), evil=np.array(Bomb(), dtype=object))), "it holds an array of object"),
    ],
    ids=range(9),
)
def test_a_hostile_file_is_one_sentence(tmp_path, monkeypatch, content, sentence):
    monkeypatch.chdir(tmp_path)
    file = first_checkpoint(tmp_path)
    file.write_bytes(content)
    assert_is_one_sentence(file, sentence)
    assert not (tmp_path / "pwned").exists()


def test_a_file_that_is_nearly_only_a_list_is_refused_before_it_is_read(tmp_path):
    """For which zipfile would take nine times as much memory."""
    with zipfile.ZipFile(tmp_path / "one", "w") as archive:
        archive.writestr("x", b"")
    content = (tmp_path / "one").read_bytes()
    entry = content[content.index(b"PK\x01\x02") : -22]
    end = b"PK\x05\x06" + bytes(8) + struct.pack("<IIH", len(entry) * 100_000, 0, 0)
    large = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(entry) * 100_000, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(entry) * 100_000, 1)
    for records in (end, large + locator + b"PK\x05\x06" + bytes(18)):
        (tmp_path / "many").write_bytes(sealed(entry * 100_000 + records))
        with pytest.raises(DamagedError, match="lists too many arrays"):
            read_archive(tmp_path / "many")


def test_a_file_with_the_records_of_a_large_one_is_read(tmp_path, monkeypatch):
    """As one of 2 GB and more has them."""
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    write_archive(tmp_path / "large", {"x": np.arange(3), "y": np.arange(4)})
    assert b"PK\x06\x07" in (tmp_path / "large").read_bytes()
    assert [array.tolist() for array in read_archive(tmp_path / "large").values()] == [[0, 1, 2], [0, 1, 2, 3]]


def test_a_checkpoint_too_large_for_the_memory_is_not_taken_for_a_damaged_one(tmp_path):
    file = first_checkpoint(tmp_path)
    write_archive(file, {"meta": meta(), "model/000-large": np.zeros(2**26, np.uint8)})
    with memory_for(2**25), pytest.raises(UserError, match="is too large for the memory of this machine"):
        find_checkpoint(tmp_path, pytest.fail)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (None, "KeyError"),
        (np.zeros(3), "JSONDecodeError"),
        (np.array("x"), "it holds an array of <U1"),
        (np.frombuffer(b"[1]", np.uint8), "its header is none"),
        (np.frombuffer(b"[" * 100_000, np.uint8), "RecursionError"),
        (meta(), "KeyError"),
        (meta(format=1), "is of format '1'"),
        (meta(format="2"), "is of format '2'"),
        (meta(format=FORMAT), "must hold sections and keys .*, not null"),
        (meta(format=FORMAT, config=3), "must hold sections and keys .*, not 3"),
        (meta(format=FORMAT, config={"env": {"id": 3}}), "env.id=3"),
        (meta(format=FORMAT, config={}), "its counters"),
        (meta(format=FORMAT, config={}, counters=[]), "its counters"),
        (meta(format=FORMAT, config={}, counters=COUNTERS | {"env_steps": "x"}), "its counters"),
        (meta(format=FORMAT, config={}, counters=COUNTERS | {"env_steps": -5}), "its counters"),
        (meta(format=FORMAT, config={}, counters=COUNTERS | {"returns": ["a"]}), "its counters"),
        (meta(format=FORMAT, config={}, counters=COUNTERS | {"returns": 3}), "its counters"),
        (meta(format=FORMAT, config={}, counters=COUNTERS | {"advance": 3}), "its counters"),
        (
            meta(format=FORMAT, config={}, counters=COUNTERS | {"env_steps": 1}, versions=3),
            "does not fit|was started with",
        ),
    ],
    ids=range(19),
)
def test_a_sealed_file_with_a_hostile_header_is_one_sentence(tmp_path, array, sentence):
    file = first_checkpoint(tmp_path)
    write_archive(file, {"weights": np.zeros(3)} if array is None else {"meta": array})
    assert_is_one_sentence(file, sentence)


def first_checkpoint(run_dir: Path) -> Path:
    (run_dir / "checkpoints").mkdir()
    return step_file(run_dir / "checkpoints", 1)


def assert_is_one_sentence(file: Path, sentence: str) -> None:
    run_dir = file.parents[1]
    uses = {file.name: lambda: evaluate(file, episodes=1), run_dir.name: lambda: train(config(), run_dir, resume=True)}
    for name, use in uses.items():
        with pytest.raises(UserError, match=sentence) as error:
            use()
        assert "\n" not in str(error.value)
        assert name in str(error.value)


def test_a_run_of_before_fire_after_a_lost_life_is_played_without_it(tmp_path):
    """The run in runs/ was made before there was such a key."""
    of_run, _ = load_config(config=PONG_RUN / "config.yaml")
    assert find_checkpoint(PONG_RUN).config.env.fire_on_life_loss is False
    assert of_run.env.fire_on_life_loss is False
    (tmp_path / "mine.yaml").write_text("env: {id: Pong}")
    mine, _ = load_config(config=tmp_path / "mine.yaml")
    assert mine.env.fire_on_life_loss is True


def test_a_run_stored_under_another_form_of_its_id_resumes_as_it_was(run_dir, tmp_path):
    """Such as runs of before ids were stored in one form: what the id means in Gymnasium was not theirs."""
    env, saved = {"sticky_action_probability": 0.0}, {"every_updates": 2}
    config = small_config(env=env, checkpoint=saved, total_env_steps=128)
    train(config, run_dir)
    old = tmp_path / "old"
    (old / "checkpoints").mkdir(parents=True)
    first = step_files(run_dir / "checkpoints")[1]
    rewritten(first, lambda meta: meta["config"]["env"].update(id="ALE/Pong-v5"), to=old / "checkpoints" / first.name)
    assert find_checkpoint(old).config == config
    assert find_checkpoint(old).env_steps == 64
    train(config, old, resume=True)
    ends = [read_checkpoint(step_files(run / "checkpoints")[-1]) for run in (run_dir, old)]
    assert ends[0].env_steps == ends[1].env_steps == 128
    assert ends[0].bits == ends[1].bits


def test_a_flipped_bit_is_noticed(trained, tmp_path):
    file = tmp_path / "flipped.npz"
    file.write_bytes(flipped(step_files(trained / "checkpoints")[-1].read_bytes()))
    with pytest.raises(UserError, match="damaged"):
        read_checkpoint(file)


def fresh(config: Config, run_dir: Path) -> Checkpoints:
    """A run that has not started yet."""
    envs = make_vec_env(config.env, seed=config.seed)
    algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
    collector = build_collector(config, envs, algorithm.policy)
    return Checkpoints(run_dir, config, algorithm=algorithm, collector=collector, counters=Counters())


def test_a_checkpoint_of_another_model_or_game_does_not_fit(trained, tmp_path):
    source = step_files(trained / "checkpoints")[-1]
    for change in ({"model": {"conv_layers": [[5, 4, 4], [8, 4, 2]]}}, {"env": {"id": "Pong"}}):
        folder = tmp_path / str(len(list(tmp_path.iterdir()))) / "checkpoints"
        folder.mkdir(parents=True)
        (folder / source.name).write_bytes(source.read_bytes())
        with pytest.raises(UserError, match="does not fit"):
            fresh(config(**change), folder.parent).restore(read_checkpoint(source))


def test_a_file_without_some_arrays_does_not_fit(trained, tmp_path):
    source = step_files(trained / "checkpoints")[-1]
    arrays = read_archive(source)
    for left_out in ("model/", "optimizer/", "collector/"):
        folder = tmp_path / left_out / "checkpoints"
        folder.mkdir(parents=True)
        write_archive(folder / source.name, {k: array for k, array in arrays.items() if not k.startswith(left_out)})
        with pytest.raises(UserError, match=r"fit|not a whole checkpoint"):
            train(config(checkpoint={"every_updates": 2, "keep": 2}), folder.parent, resume=True)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("optimizer/001-learning_rate", np.nan, "The optimizer of .* not finite"),
        ("collector/draws", 2**62, "not a whole checkpoint"),
    ],
)
def test_a_number_that_no_run_writes_is_noticed_before_anything_is_learned(trained, tmp_path, key, value, message):
    source = step_files(trained / "checkpoints")[-1]
    arrays = read_archive(source)
    file = tmp_path / source.name
    write_archive(file, {**arrays, key: np.full_like(arrays[key], value)})
    saved = read_checkpoint(file)
    with pytest.raises(UserError, match=message):
        fresh(saved.config, tmp_path).restore(saved)


@pytest.mark.parametrize("group", ["critics", "policy optimizer"])
def test_every_array_that_an_algorithm_of_ours_has_must_be_finite(tmp_path, group):
    few = {"total_env_steps": 64, "algorithm.learning_starts": 8, "algorithm.batch_size": 8, "runtime.mode": "eager"}
    config, _ = load_config(env_id="Chain", overrides={"algorithm.name": "sac", **few})
    train(config, tmp_path / "run")
    source = step_files(tmp_path / "run" / "checkpoints")[-1]
    arrays = read_archive(source)
    key = next(name for name, array in arrays.items() if name.startswith(f"{group}/") and array.dtype == np.float32)
    write_archive(source, {**arrays, key: np.full_like(arrays[key], np.nan)})
    saved = read_checkpoint(source)
    with pytest.raises(UserError, match=f"The {group} of .* not finite"):
        fresh(saved.config, tmp_path).restore(saved)


def test_what_first_does_not_fit_is_named(trained, tmp_path):
    source = step_files(trained / "checkpoints")[-1]
    arrays = read_archive(source)
    kernel = next(name for name in arrays if name.startswith("model/"))
    slots, shape = [name for name in arrays if name.startswith("optimizer/")], arrays[kernel].shape
    wide = f"its model has float64 {shape} as array 0, and its configuration here has float32 {shape} there."
    changes = {
        wide: {**arrays, kernel: arrays[kernel].astype(np.float64)},
        f"its optimizer has float64 (3,) as array {len(slots) - 1}, and": {**arrays, slots[-1]: np.zeros(3)},
        "it has no 'optimizer', and its configuration here has.": {k: a for k, a in arrays.items() if k not in slots},
        "it has 'scale', which a2c here does not save, so": {**arrays, "scale/000-x": np.zeros(1)},
        "it has 'memory', which a2c here does not save, so": {**arrays, "memory/total": np.zeros(1)},
    }
    for told, changed in changes.items():
        write_archive(tmp_path / source.name, changed)
        saved = read_checkpoint(tmp_path / source.name)
        with pytest.raises(UserError, match="does not fit: .*" + re.escape(told)):
            fresh(saved.config, tmp_path).restore(saved)


class Record(A2C):
    """Remembers its best return, which is -inf at first."""

    class Section(A2CSection):
        TITLE = "A2C with a record"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.best = keras.Variable(-np.inf, trainable=False, name="best", dtype="float32")
        self.variables["record"] = [self.best]


def test_an_array_of_ones_own_may_be_infinite_but_no_weight(tmp_path):
    first = config(total_env_steps=32)
    train(first, tmp_path, algorithm=Record)
    longer = first.model_copy(update={"total_env_steps": 64})
    assert train(longer, tmp_path, algorithm=Record, resume=True).counters.env_steps == 64
    source = step_files(tmp_path / "checkpoints")[-1]
    arrays = read_archive(source)
    assert np.isinf(arrays["record/000-best"])
    write_archive(source, {**arrays, (key := "model/000-kernel"): np.full_like(arrays[key], np.nan)})
    with pytest.raises(UserError, match=r"The model of .* not finite"):
        train(longer.model_copy(update={"total_env_steps": 96}), tmp_path, algorithm=Record, resume=True)


def test_counters_leave_room_for_what_is_added_to_them(trained, tmp_path):
    source = step_files(trained / "checkpoints")[-1]
    file = rewritten(source, lambda meta: meta["counters"].update(updates=2**62), to=tmp_path / source.name)
    with pytest.raises(UserError, match="its counters are not those of a run"):
        read_checkpoint(file)


def test_best_is_the_best_full_window(trained, tmp_path):
    """Kept only when the mean of 100 games improves, so not on a lucky first game."""

    class Part:
        """Stands for algorithm and collector at once: nothing of theirs is saved here."""

        variables = {"model": ()}  # noqa: RUF012
        memory = None

        def state(self):
            return {}

    counters = Counters()
    checkpoints = Checkpoints(tmp_path, small_config(), algorithm=Part(), collector=Part(), counters=counters)

    def save(score: float, games: int) -> bool:
        counters.env_steps += 1
        counters.returns.extend([score] * games)
        checkpoints.save()
        best = tmp_path / "checkpoints" / BEST
        return best.exists() and best.samefile(step_file(best.parent, counters.env_steps))

    assert not save(5.0, 50)
    assert save(5.0, 50)
    assert save(7.0, 100)
    assert not save(6.0, 100)
    counters.updates = 1  # a moment that a signal chose: the best is what it would be without
    assert not save(9.0, 100)
    assert counters.best_return == 7.0
    assert read_checkpoint(tmp_path / "checkpoints" / BEST).meta["counters"]["env_steps"] == 3
    counters.updates = 0
    assert not save(np.inf, 100)
    assert not save(np.nan, 100)
    assert counters.best_return == 7.0
    counters.best_return = np.inf  # as an earlier version could note
    assert save(6.0, 100)
    assert len(step_files(tmp_path / "checkpoints")) == small_config().checkpoint.keep


@pytest.mark.parametrize("keep", [1, 99])
def test_as_many_are_kept_as_asked_for(run_dir, keep):
    """Of 4, with that of the start."""
    config = small_config(env={"id": "Catch"}, checkpoint={"every_updates": 1, "keep": keep}, total_env_steps=96)
    train(config, run_dir)
    steps = [read_checkpoint(file).env_steps for file in step_files(run_dir / "checkpoints")]
    assert steps == [0, 32, 64, 96][-keep:]


def test_a_kill_between_link_and_rename_never_damages_the_best(tmp_path):
    """best.npz and the temporary file are then one file: the next save must not write into it."""
    run_dir = tmp_path / "run"
    config = small_config(env={"id": "Catch"}, total_env_steps=64, checkpoint={"every_updates": 100})
    train(config, run_dir)
    folder = run_dir / "checkpoints"
    (latest,) = [path for path in step_files(folder) if "64" in path.name]
    (folder / BEST).hardlink_to(latest)
    (folder / ".step-000000000096.npz.tmp").hardlink_to(latest)
    before = (folder / BEST).read_bytes()
    train(config.model_copy(update={"total_env_steps": 96}), run_dir, resume=True)
    assert (folder / BEST).read_bytes() == before
    assert not list(folder.glob(".*"))


def test_saving_never_deletes_what_it_wrote(tmp_path):
    """Not even where names that are no checkpoints of ours sort after it."""
    run_dir = tmp_path / "run"
    config = small_config(env={"id": "Catch"}, total_env_steps=64, checkpoint={"keep": 1})
    train(config, run_dir)
    (latest,) = step_files(run_dir / "checkpoints")
    (run_dir / "checkpoints" / "step-best.npz").write_bytes(latest.read_bytes())
    (run_dir / "checkpoints" / "step-999999999999.npz").write_bytes(b"damaged")
    train(config.model_copy(update={"total_env_steps": 96}), run_dir, resume=True)
    assert [path.name for path in step_files(run_dir / "checkpoints")] == ["step-000000000096.npz"]


def test_another_configuration_is_refused(trained):
    for change in ({"seed": 9}, {"optimizer": {"learning_rate": 0.5}}, {"total_env_steps": 100}):
        with pytest.raises(UserError, match=r"was started with|steps already"):
            train(config(checkpoint={"every_updates": 2, "keep": 2}, **change), trained, resume=True)
