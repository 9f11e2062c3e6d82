"""Bundles: an agent in one file plays as its run does, has the same bytes each time, and does no harm if hostile."""

import hashlib
import io
import json
import math
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import yaml
from conftest import PONG_RUN, packed, small_config
from numpy.lib import format as npy
from strangers import assert_well_ended, snapshot, within_bounds

from a2c import extensions
from a2c.config import build_config
from a2c.evaluation.evaluate import evaluate
from a2c.export.export import export, export_bundle
from a2c.run.archive import read_archive, write_archive
from a2c.run.bundle import read_bundle
from a2c.run.checkpoint import read_checkpoint
from a2c.run.lookup import find_checkpoint
from a2c.run.step_files import step_files
from a2c.run.training import train


def config(**sections):
    values = {
        "env": {"id": "Chain"},
        "model": {"name": "mlp", "hidden_sizes": [4]},
        "logging": {"trackers": []},
        "total_env_steps": 64,
    }
    return small_config(**{**values, **sections})


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "run"
    train(config(evaluation={"episodes": 6}), folder)
    return folder


@pytest.fixture(scope="module")
def bundle(run, tmp_path_factory) -> Path:
    return export_bundle(run, out=tmp_path_factory.mktemp("shared") / "chain.a2c").file


def card_of(file: Path) -> str:
    with zipfile.ZipFile(file) as archive:
        return archive.read("card.md").decode()


# --- what it is good for ---------------------------------------------------------------------------------------------


def test_it_plays_the_games_of_its_run(run, bundle, run_cli, tmp_path):
    ended = run_cli("eval", run, bundle, "--json", "both.json", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    first, second = json.loads((tmp_path / "both.json").read_text())
    assert (first.pop("checkpoint"), second.pop("checkpoint")) == (str(run), str(bundle))
    assert first == second
    assert len({*second["returns"]}) > 1, "all games are alike: nothing is compared"
    told = json.loads((run / "evaluations.jsonl").read_text().splitlines()[-1])
    assert second["returns"] == told["returns"]  # in training


def test_the_same_agent_gives_the_same_bytes(run, bundle, tmp_path):
    """From the run, its checkpoint, or a bundle of it; whatever the file is called."""
    for number, source in enumerate((run, step_files(run / "checkpoints")[-1], bundle)):
        again = export_bundle(source, out=tmp_path / f"{number}.a2c").file
        assert again.read_bytes() == bundle.read_bytes(), source
    with zipfile.ZipFile(bundle) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_it_holds_the_weights_alone_and_says_where_they_are_from(run, bundle):
    file = step_files(run / "checkpoints")[-1]
    whole, saved = read_checkpoint(file), find_checkpoint(bundle)
    assert [*saved.arrays] == [f"model/{name}" for name in whole.group("model")]
    for key, array in saved.arrays.items():
        assert array.tobytes() == whole.arrays[key].tobytes()
    assert (saved.config, saved.env_steps) == (whole.config, 64)
    for name in ("versions", "machine", "counters"):
        assert saved.meta[name] == whole.meta[name]
    facts = saved.meta["bundle"]
    assert facts["checkpoint"]["file"] == file.name
    told = json.loads((run / "evaluations.jsonl").read_text().splitlines()[-1])
    assert facts["evaluation"] == {k: told[k] for k in facts["evaluation"]}
    assert facts["evaluation"].keys() >= {"mean", "interval", "episodes", "seed", "policy", "protocol", "versions"}
    assert str(run.parent).encode() not in bundle.read_bytes()


def test_its_card_tells_people_the_same(run, bundle, tmp_path):
    card, saved = card_of(bundle), find_checkpoint(bundle)
    facts = saved.meta["bundle"]
    low, high = facts["evaluation"]["interval"]
    for text in (
        "# Chain: an agent after 64 agent steps",
        "a2c eval FILE\na2c watch FILE\na2c train --config config.yaml --init-from FILE\n",
        f"| mean | {facts['evaluation']['mean']:,.6g} |",
        f"| interval | [{low}, {high}] |",
        "| score | undiscounted sum of raw rewards |",
        "0 LEFT, 1 RIGHT.",
        f"SHA-256 {facts['checkpoint']['sha256']}",
        f"| tensorflow | {saved.meta['versions']['tensorflow']} |",
    ):
        assert text in card, text
    settings = card.split("```yaml\n")[1].split("```")[0]
    assert build_config(yaml.safe_load(settings), where="card") == saved.config


@pytest.mark.integration
def test_an_agent_without_an_evaluation_is_judged_first(tmp_path):
    train(config(total_env_steps=32), tmp_path / "run")
    written = export_bundle(tmp_path / "run")
    assert written.file == tmp_path / "run" / "chain-32-steps.a2c"
    judged = read_bundle(written.file).meta["bundle"]["evaluation"]
    assert judged == written.facts["evaluation"]
    played = evaluate(tmp_path / "run")
    assert (judged["mean"], judged["interval"], judged["episodes"]) == (played.mean, [*played.interval], 20)


def test_a_reference_agent_is_small(tmp_path, run_cli):
    ended = run_cli("export", PONG_RUN, "--format", "bundle", "--out", tmp_path)
    file = tmp_path / "pong-3000320-steps.a2c"
    assert ended.returncode == 0, ended
    assert ended.stdout.startswith(
        "Pong after 3,000,320 steps: mean 19.40 (95 % interval 19.10 to 19.65) over 20 whole games\n"
    )
    assert ended.stdout.endswith("\n  a2c eval pong-3000320-steps.a2c\n")
    assert file.stat().st_size < 2_750_000
    assert card_of(file).startswith("# Pong: an agent after 3,000,320 agent steps")


def test_a_run_starts_with_its_weights(bundle, tmp_path):
    train(config(seed=3), tmp_path / "new", init_from=bundle)
    begun = read_checkpoint(step_files(tmp_path / "new" / "checkpoints")[0])
    for key, array in find_checkpoint(bundle).arrays.items():
        assert begun.arrays[key].tobytes() == array.tobytes()
    assert begun.meta["init_from"].startswith(f"{bundle}, 64 steps, weights ")


@pytest.mark.integration
def test_a_video_lands_beside_it(catch_run, tmp_path, run_cli):
    export_bundle(catch_run, out=tmp_path / "catch.a2c")
    ended = run_cli("watch", "catch.a2c", "--episodes", 1, cwd=tmp_path)
    assert ended.returncode == 0, ended
    (gif, mp4) = sorted((tmp_path / "videos").iterdir(), key=lambda file: file.suffix)
    assert (gif.suffix, mp4.suffix) == (".gif", ".mp4")
    assert f"{gif}  " in ended.stdout and f"{mp4}  " in ended.stdout


def test_other_formats_are_made_of_it(bundle, tmp_path, run_cli):
    ended = run_cli("export", bundle, "--format", "savedmodel", "--out", tmp_path / "out")
    assert ended.returncode == 0, ended
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["checkpoint"] == find_checkpoint(bundle).meta["bundle"]["checkpoint"]
    assert card["evaluation"] == find_checkpoint(bundle).meta["bundle"]["evaluation"]


def test_what_cannot_be_done_with_it_is_one_sentence(bundle, run, tmp_path, run_cli):
    for words, said in {
        ("resume", bundle): f"{bundle} holds an agent but no run to resume; `a2c train --init-from ",
        ("report", bundle): f"{bundle} is a file; name the run's folder.",
        ("train", "--env", "Catch", "--init-from", bundle, "--run-dir", tmp_path / "x"): "is another than this run's",
        ("export", run, "--format", "bundle", "--format", "onnx"): "A bundle is a file by itself; give --format bundle",
        ("export", run, "--format", "bundle", "--out", tmp_path / "x.npz"): "x.npz must end in .a2c, or be a folder",
        ("export", run, "--format", "bundle", "--out", tmp_path / "no" / "x.a2c"): "cannot be written: No such file",
        ("export", tmp_path, "--format", "bundle"): "holds no checkpoint",
        ("eval", tmp_path / "x.a2c"): "There is no run folder or checkpoint",
    }.items():
        ended = run_cli(*words)
        assert_well_ended(ended)
        assert (ended.returncode, said in ended.stderr) == (2, True), ended
    assert list(tmp_path.iterdir()) == []


BREAKOUT = PONG_RUN.with_name("breakout-reference")  # the weights alone, in the folder of a run


def test_a_folder_that_keeps_the_weights_alone_cannot_be_resumed(tmp_path, run_cli):
    folder = shutil.copytree(BREAKOUT, tmp_path / "agent")
    ended = run_cli("resume", folder)
    assert_well_ended(ended)
    assert (ended.returncode, "holds an agent but no run to resume" in ended.stderr) == (2, True), ended
    assert {name.split("/")[0] for name in find_checkpoint(folder).arrays} == {"model"}


def test_weights_may_have_any_name_that_keras_allows(bundle, tmp_path):
    arrays = read_archive(bundle)
    weights = [arrays.pop(name) for name in list(arrays) if name.startswith("model/")]
    names = [keras.Variable(0.0, name=name).name for name in ("log-std", "my scale", "größe.npy", "\n")]
    renamed = {f"model/{i:03d}-{names[i % 4]}": weight for i, weight in enumerate(weights)}
    write_archive(tmp_path / "own.a2c", arrays | renamed)
    assert read_bundle(tmp_path / "own.a2c").arrays.keys() == renamed.keys()


@pytest.mark.integration
def test_the_weights_alone_play():
    assert evaluate(BREAKOUT, episodes=4).mean > 100  # random play: 1.7; its 20 games: 319 to 431


def test_what_is_too_large_to_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("a2c.run.archive.LARGEST", 1_000)
    write_archive(tmp_path / "small", {"x": np.zeros(10)})
    read_archive(tmp_path / "small")
    with pytest.raises(OSError, match="more than 1,000 bytes"):
        write_archive(tmp_path / "large", {"x": np.zeros(100)})
    assert [file.name for file in tmp_path.iterdir()] == ["small"]


def test_one_of_another_number_of_threads_plays_and_is_exported_with_a_warning(bundle, tmp_path):
    """As in a notebook; TensorFlow's threads are set once in a process."""
    file, told = changing("config runtime threads", 3)(bundle, tmp_path / "three.a2c"), []
    evaluate(file, episodes=1, warn=told.append)
    export(file, out=tmp_path / "files", formats=["savedmodel"], warn=told.append)
    assert [sentence.partition(":")[0] for sentence in told] == ["runtime.threads=3 comes too late"] * 2


# --- hostile ones ----------------------------------------------------------------------------------------------------


def changing(keys: str, value: object) -> Callable[[Path, Path], Path]:
    """The bundle with another value in its header, sealed again."""

    def change(bundle: Path, target: Path) -> Path:
        arrays = read_archive(bundle)
        inner = meta = json.loads(arrays["meta"].tobytes())
        *outer, last = keys.split()
        for key in outer:
            inner = inner[key]
        inner[last] = value
        write_archive(target, {**arrays, "meta": packed(meta)}, card="card")
        return target

    return change


def with_arrays(bundle: Path, target: Path, **more: np.ndarray) -> Path:
    arrays = read_archive(bundle)
    write_archive(target, {**arrays, **more})
    return target


def zipped(
    bundle: Path,
    target: Path,
    more: dict[str, bytes] | None = None,
    *,
    kind: int = zipfile.ZIP_STORED,
    seal: bool = True,
) -> Path:
    """Its members, and more of them, in another zip file, with the checksum of a stranger who knows how it is made."""
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(target, "w", kind) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        for name, content in (more or {}).items():
            new.writestr(name, content)
        new.comment = b"a2c-sha256:" + bytes(64) if seal else b""
    if seal:
        content = target.read_bytes()[:-64]
        target.write_bytes(content + hashlib.sha256(content).hexdigest().encode())
    return target


def pickled(target: Path) -> bytes:
    class Canary:
        def __reduce__(self):
            return (Path.touch, (target.with_name("executed"),))

    stream = io.BytesIO()
    np.save(stream, np.array([Canary()], object), allow_pickle=True)
    return stream.getvalue()


def shaped(shape: tuple[int, ...]) -> bytes:
    """An array's header alone."""
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(16)


def cut_short(bundle: Path, target: Path) -> Path:
    target.write_bytes(bundle.read_bytes()[:-100])
    return target


def one_bit(bundle: Path, target: Path) -> Path:
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    target.write_bytes(data)
    return target


ARRAY = np.zeros((1, 1), np.float32)
KERNEL, RECORD = "model/999-kernel.npy", "gymnasium.wrappers:RecordVideo"
HOSTILE = {
    "cut short": (cut_short, "is damaged"),
    "a bit changed": (one_bit, "its checksum is wrong"),
    "no checksum": (lambda b, t: zipped(b, t, seal=False), "it has no checksum at its end"),
    "compressed": (lambda b, t: zipped(b, t, kind=zipfile.ZIP_DEFLATED), "it is compressed"),
    "a zip bomb": (lambda b, t: zipped(b, t, {KERNEL: bytes(2**26)}, kind=zipfile.ZIP_DEFLATED), "it is compressed"),
    "a pickle": (lambda b, t: zipped(b, t, {KERNEL: pickled(t)}), "it holds an array of object"),
    "a petabyte": (lambda b, t: zipped(b, t, {KERNEL: shaped((2**25, 2**25))}), "of another size than it says"),
    "less than nothing": (lambda b, t: zipped(b, t, {KERNEL: shaped((-1, -4))}), "of another size than it says"),
    "a file above": (lambda b, t: zipped(b, t, {"../executed": b"x"}), "is damaged"),
    "a path above": (lambda b, t: with_arrays(b, t, **{"../executed": ARRAY}), "damaged or no bundle"),
    "an absolute path": (lambda b, t: with_arrays(b, t, **{str(t.with_name("executed")): ARRAY}), "damaged or no"),
    "an optimizer": (lambda b, t: with_arrays(b, t, **{"optimizer/000-x": ARRAY}), "damaged or no bundle"),
    "more weights": (lambda b, t: with_arrays(b, t, **{"model/999-kernel": ARRAY}), "does not fit: its model has"),
    "other weights": (lambda b, t: with_arrays(b, t, **{"model/000-kernel": ARRAY}), "does not fit: its model has"),
    "a huge network": (changing("config model hidden_sizes", [60_000, 60_000]), "does not fit: its model has"),
    "no network": (changing("config model name", "nowhere"), "model.name='nowhere' is not allowed"),
    "no facts": (changing("bundle", None), "damaged or no bundle"),
    "no evaluation": (changing("bundle evaluation", None), "damaged or no bundle"),
    "no mean": (changing("bundle evaluation mean", "\x1b[31m"), "damaged or no bundle"),
    "an endless mean": (changing("bundle evaluation mean", 10**400), "damaged or no bundle"),
    "no origin": (changing("bundle checkpoint", {}), "damaged or no bundle"),
    "of yesterday": (changing("format", 1), "is of format '1'"),
    "of tomorrow": (changing("bundle version", 2), "is a bundle of version 2, and this a2c reads 1"),
    "counters": (changing("counters env_steps", -1), "its counters are not those of a run"),
    "an age": (changing("counters seconds", 1e300), "its counters are not those of a run"),
    "less than no time": (changing("counters seconds", -1.0), "its counters are not those of a run"),
    "no number": (changing("counters seconds", math.nan), "its counters are not those of a run"),
    "a long header": (changing("versions", "x" * 2**20), "its header is too long"),
    "an environment's code": (changing("config env id", "canary:Own-v0"), "so with --env canary:Own-v0"),
    "a network's code": (changing("config model name", "canary:own"), "so with --model canary:own"),
    "an algorithm's code": (changing("config algorithm name", "canary:Own"), "so with --algorithm canary:Own"),
    "a wrapper's code": (changing("config env wrappers", [{"canary:Own": {}}]), "so with --wrapper canary:Own"),
    "a wrapper that writes": (changing("config env wrappers", [{RECORD: {"video_folder": "executed"}}]), RECORD),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_bundle_is_one_sentence(bundle, tmp_path, run_cli, monkeypatch, kind):
    (tmp_path / "canary.py").write_text("open('executed', 'a').close()")
    monkeypatch.setenv(extensions.TRUSTED, "")
    make, said = HOSTILE[kind]
    file = make(bundle, tmp_path / "hostile.a2c")
    before = snapshot(tmp_path)
    for words in (("eval", file), ("export", file, "--format", "bundle", "--out", tmp_path / "x.a2c")):
        with within_bounds(30):
            ended = run_cli(*words, cwd=tmp_path)
        assert_well_ended(ended)
        assert (ended.returncode, said in ended.stderr) == (2, True), ended
    assert snapshot(tmp_path) == before
    assert "canary" not in sys.modules


@pytest.mark.parametrize("facts", [{"x": 1}, {"checkpoint": {}, "evaluation": {"mean": 10**400}}, [], "x"])
def test_what_a_strangers_checkpoint_says_of_a_bundle_is_not_believed(run, bundle, tmp_path, facts):
    """Under the name of a checkpoint: it is one, and is judged again."""
    file = changing("bundle", facts)(bundle, tmp_path / "stranger.npz")
    written = export_bundle(file, out=tmp_path / "x.a2c")
    assert written.facts["checkpoint"]["file"] == "stranger.npz"
    assert written.facts["evaluation"]["interval"] == find_checkpoint(bundle).meta["bundle"]["evaluation"]["interval"]


def test_a_strangers_evaluation_is_made_again_unless_it_is_one(run, tmp_path):
    stranger = tmp_path / "run"
    shutil.copytree(run, stranger)
    (stranger / "evaluations.jsonl").write_text('{"env_steps": 64, "mean": "\\u001b[31m"}\n')
    assert export_bundle(stranger).facts["evaluation"]["interval"] is not None
