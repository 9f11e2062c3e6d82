"""Whole run folders of strangers, mutated: each works, is refused in one sentence, or its odd parts are passed over."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml
from conftest import draw_nothing, small_config
from show.run_folders import evaluation, make_run
from strangers import LINKS, ODD, assert_well_ended, clear, make_decoy, snapshot, within_bounds
from test_strangers import EXPLODING, HOSTILE

from a2c.config.yaml_loader import load_yaml

PLACES = [
    *("config.yaml", "metrics.jsonl", "evaluations.jsonl", "report.html", ".report.html.tmp", "plots"),
    *("plots/return-steps.png", "plots/return-steps.svg", "plots/.return-steps.png.tmp", "videos", "videos/a.mp4"),
    *("checkpoints", "checkpoints/best.npz", "checkpoints/step-000000000128.npz", ".lock", "incidents"),
    *(".metrics.jsonl.tmp", ".config.yaml.tmp", "events.out.tfevents.0000000001.x.1", "export-000000000128"),
]
VALUES = [
    *(None, True, 0, -1, 1e308, -1e308, 2**63, 10**300, 0.5, float("nan"), float("inf"), "1", "", "Pong", "os:system"),
    *([], {}, [[[]]], [1] * 200, {"a": {"b": []}}, "x" * 5_000, "'; touch canary; '", "${x}", "<script>", *HOSTILE),
]
QUICK = [("report",), ("plot",), ("plot", "--what", "all", "--x", "minutes"), ("train", "--env", "No", "--config")]
ALL = [
    *QUICK,
    ("eval", "--episodes", "1"),
    ("resume", "--quiet"),
    ("watch", "--episodes", "1"),
    ("export",),
    ("compare",),
]


@pytest.fixture(scope="module")
def logged(tmp_path_factory) -> Path:
    """A run as it is looked at, without what TensorFlow reads."""
    run = make_run(tmp_path_factory.mktemp("fuzzed") / "run", [1.0, 2.0, None, 4.0], evaluations=[evaluation(200, 1.0)])
    for name in ("videos", "plots", "checkpoints"):
        (run / name).mkdir()
    (run / "videos" / "a.mp4").write_bytes(b"film")
    (run / "checkpoints" / "best.npz").write_bytes(b"PK")
    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run that every command can use; beside it `other`, which differs in its learning rate."""
    from a2c.run.training import train  # imports TensorFlow

    home = tmp_path_factory.mktemp("fuzzed")
    small = {"env": {"id": "Catch"}, "total_env_steps": 128}
    for name, rate in (("run", 1e-3), ("other", 1e-4)):
        settings = {**small, "optimizer": {"learning_rate": rate}}
        train(small_config(**settings, evaluation={"episodes": 1, "every_env_steps": 64}), home / name)
    return home / "run"


def mutate(run: Path, decoy: Path, rng: random.Random) -> list[str]:
    """Change one to three things of a run folder; says which."""
    done = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        way = rng.choice([lay, lay, change_bytes, change_lines, change_values, change_values, explode])
        done.append(f"{way.__name__} {way(run, decoy, rng)}")
    return done


def lay(run: Path, decoy: Path, rng: random.Random) -> str:
    """A link, a pipe or another odd thing in any place."""
    place, kinds = run / rng.choice(PLACES), {**LINKS, **ODD}
    kind = rng.choice(sorted(kinds))
    if not real_folder(place.parent, run):
        return "nothing"
    place.parent.mkdir(exist_ok=True)
    clear(place)
    kinds[kind](place, decoy)
    return f"{kind} as {place.name}"


def change_bytes(run: Path, decoy: Path, rng: random.Random) -> str:
    """Flip, cut, repeat or put in bytes of a file."""
    file = some_file(run, rng)
    if file is None:
        return "nothing"
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 3, 30])):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0 if at < len(data):
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.choice([1, 10, 1_000])]
            case 2:
                data[at:at] = rng.choice(
                    [b"\0", b"\xff", b"\x1b[31m", b"\n", b"[" * 100, b"!!x ", b"&a ", b"*a", b"- "]
                )
            case _:
                data[at:at] = data[at : at + rng.choice([1, 100, 10_000])]
    file.write_bytes(data)
    return file.name


def change_lines(run: Path, decoy: Path, rng: random.Random) -> str:
    """Values of lines of JSON, and half lines."""
    file = run / rng.choice(["metrics.jsonl", "evaluations.jsonl"])
    if not plain_file(file):
        return "nothing"
    lines = file.read_text(errors="replace").split("\n")
    for _ in range(rng.choice([1, 5])):
        at = rng.randrange(len(lines))
        try:
            values = json.loads(lines[at])
            values[rng.choice([*values, *HOSTILE])] = rng.choice(VALUES)
            lines[at] = json.dumps(values)
        except (ValueError, TypeError):
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    file.write_text("\n".join(lines) * rng.choice([1, 1, 1, 20]), errors="replace")
    return file.name


def change_values(run: Path, decoy: Path, rng: random.Random) -> str:
    """Values and keys of the configuration."""
    file = run / "config.yaml"
    try:
        values = load_yaml(file.read_text()) if plain_file(file) else None
        section = rng.choice([values, values["env"], values["model"], values["algorithm"], values["provenance"]])
        section[rng.choice([*section, *HOSTILE])] = rng.choice(VALUES)
        file.write_text(yaml.safe_dump(values), errors="replace")
    except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        return "nothing"
    return file.name


def explode(run: Path, decoy: Path, rng: random.Random) -> str:
    """A few lines of YAML that stand for more than memory."""
    file, name = run / "config.yaml", rng.choice(sorted(EXPLODING))
    if not plain_file(file):
        return "nothing"
    with file.open("a") as stream:
        stream.write(EXPLODING[name].replace("provenance", rng.choice(["provenance", "more"])))
    return name


def some_file(run: Path, rng: random.Random) -> Path | None:
    found = sorted(file for file in run.rglob("*") if plain_file(file))
    return rng.choice(found) if found else None


def plain_file(file: Path) -> bool:
    """Whether it may be mutated: no link, of either kind, and no giant."""
    if file.is_symlink() or not file.is_file() or not real_folder(file.parent, None):
        return False
    state = file.lstat()
    return state.st_nlink == 1 and state.st_size < 2**20


def real_folder(folder: Path, run: Path | None) -> bool:
    return not folder.is_symlink() and (folder.is_dir() or (run is not None and not folder.exists()))


def words_for(command: tuple[str, ...], run: Path, other: Path, config: Path) -> list[object]:
    if command[-1] == "--config":
        return [*command, config]
    return [*command, run, *([other] if command == ("compare",) else [])]


def explore(seeds: range, original: Path, commands: list, tmp_path: Path, run_cli) -> Counter:
    """Mutate, run a command, and look at what became of it and of all around it."""
    decoy = make_decoy(tmp_path / "decoy")
    outside, seen = snapshot(decoy), Counter()
    home = tmp_path / "home"
    home.mkdir()
    for seed in seeds:
        rng = random.Random(seed)
        name = rng.choice(["run", "run", *HOSTILE]) + "-"
        run = home / name
        shutil.copytree(original, run)
        what = mutate(run, decoy, rng)
        command = commands[seed % len(commands)]
        there = sorted(home.iterdir())
        try:
            with within_bounds():
                ended = run_cli(*words_for(command, run, original.with_name("other"), run / "config.yaml"), cwd=home)
            assert_well_ended(ended)
            assert snapshot(decoy) == outside
            assert sorted(home.iterdir()) == there or command == ("compare",)
        except BaseException:
            print(f"seed {seed}: {command} {what}")
            raise
        seen[f"{command[0]} {'refused' if ended.returncode else 'fine'}"] += 1
        for left in home.iterdir():
            clear(left)
    assert not list(tmp_path.rglob("canary"))
    return seen


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.integration)])
def test_folders_that_are_looked_at(tmp_path, logged, monkeypatch, run_cli, first):
    """Without the pictures, which are matplotlib's."""
    draw_nothing(monkeypatch)
    seen = explore(range(first, first + 100), logged, QUICK, tmp_path, run_cli)
    assert {name.split()[1] for name in seen} == {"fine", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 20_000, 1_000))
def test_folders_through_every_command(tmp_path, trained, run_cli, first):
    seen = explore(range(first, first + 1_000), trained, ALL, tmp_path, run_cli)
    assert {name.split()[0] for name in seen if "fine" in name} >= {"report", "plot", "eval", "resume", "compare"}
    print(", ".join(f"{name}: {count:,}" for name, count in sorted(seen.items())))


@pytest.mark.slow
def test_folders_in_a_table_of_runs(tmp_path, trained, run_cli):
    seen = explore(range(20_000, 21_000), trained, [("runs",)], tmp_path, run_cli)
    assert {name.split()[1] for name in seen} == {"fine", "refused"}
    print(dict(seen))
