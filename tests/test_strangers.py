"""Run folders of a stranger: links where a command writes, odd things where it reads, YAML that explodes, names."""

import contextlib
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import draw_nothing, small_config
from show.run_folders import evaluation, make_run
from strangers import LINKS, ODD, assert_well_ended, clear, make_decoy, snapshot, within_bounds

from a2c.config import UserError, load_config, printable, shown, typed
from a2c.config.yaml_loader import load_yaml
from a2c.run import files, logs
from a2c.show import video

HOSTILE = ["\x1b[31m", "\x9b31m", "\u202eevil", "a\u2028b", os.fsdecode(b"\xff"), "new\nline", "\x07\b\r", "[red]x[/]"]


@pytest.fixture
def decoy(tmp_path):
    return make_decoy(tmp_path / "decoy")


@pytest.fixture
def quick_pictures(monkeypatch):
    """Pictures are drawn elsewhere; here it matters where they land."""
    draw_nothing(monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run with checkpoints of every kind, evaluations and events, that can be resumed."""
    from a2c.run.training import train  # imports TensorFlow

    folder = tmp_path_factory.mktemp("trained") / "run"
    config = small_config(
        env={"id": "Bandit"},
        model={"name": "mlp", "hidden_sizes": [4]},
        total_env_steps=128,
        evaluation={"episodes": 1, "every_env_steps": 64},
    )
    train(config, folder)
    shutil.copy(next((folder / "checkpoints").glob("step-*")), folder / "checkpoints" / "best.npz")
    return folder


def make_logged(folder: Path) -> Path:
    return make_run(folder, [1.0, 2.0], evaluations=[evaluation(100, 1.0)])


def copy_of(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder))


# --- writing ------------------------------------------------------------------------------------------------------


def places_written(before: dict, after: dict) -> set[str]:
    """What a command wrote into a folder, the folders of it, and the names it writes under first."""
    files = {name for name in after if after[name] != before.get(name)}
    inner = {str(folder) for name in files for folder in Path(name).parents if str(folder) != "."}
    return files | inner | {str(Path(name).with_name(f".{Path(name).name}.tmp")) for name in files}


def assert_nothing_leaves(folder: Path, run: Path, decoy: Path, command, kinds=LINKS, turn: int | None = None) -> None:
    """Whatever link lies in any place that a command writes, nothing outside of the run is changed.

    In a turn each place has one of the kinds; in as many turns as there are kinds, all of them.
    """
    clean = copy_of(run, folder / "clean")
    before = snapshot(clean)
    command(clean)
    places = places_written(before, snapshot(clean))
    assert places
    outside = snapshot(decoy)
    pairs = [
        (place, kind)
        for i, place in enumerate(sorted(places))
        for j, kind in enumerate(kinds)
        if turn is None or (i + turn) % len(kinds) == j
    ]
    for number, (place, kind) in enumerate(pairs):
        stranger = copy_of(run, folder / str(number))
        spot = stranger / place
        if not spot.parent.is_dir():
            spot.parent.mkdir(parents=True)
        clear(spot)
        kinds[kind](spot, decoy)
        command(stranger)
        assert snapshot(decoy) == outside, (place, kind)


@pytest.mark.parametrize("words", [("plot",), ("report",)], ids=" ".join)
def test_plot_and_report_write_through_no_link(tmp_path, decoy, quick_pictures, run_cli, words):
    def command(run: Path) -> None:
        assert_well_ended(run_cli(*words, run))

    assert_nothing_leaves(tmp_path, make_logged(tmp_path / "run"), decoy, command)


@pytest.mark.parametrize("words", [("plot",), ("report",)], ids=" ".join)
def test_a_command_given_in_a_strangers_folder_writes_through_no_link(tmp_path, decoy, quick_pictures, run_cli, words):
    """With several runs the current folder is where it writes."""
    other = make_logged(tmp_path / "other")

    def command(run: Path) -> None:
        assert_well_ended(run_cli(*words, run, other, cwd=run))

    assert_nothing_leaves(tmp_path, make_logged(tmp_path / "run"), decoy, command)


def test_an_output_option_may_point_anywhere(tmp_path, decoy, quick_pictures, run_cli):
    run = make_logged(tmp_path / "run")
    (tmp_path / "page.html").symlink_to(decoy / "file")
    assert run_cli("report", run, "--out", tmp_path / "page.html").returncode == 0
    assert (decoy / "file").read_text().startswith("<!DOCTYPE")
    (run / "elsewhere").symlink_to(decoy / "folder")
    assert run_cli("plot", run, "--out", run / "elsewhere" / "x.png").returncode == 0
    assert (decoy / "folder" / "x.png").exists()


@pytest.mark.parametrize("turn", [0, *(pytest.param(t, marks=pytest.mark.integration) for t in range(1, len(LINKS)))])
def test_resume_writes_through_no_link(tmp_path, decoy, trained, turn):
    from a2c.run.checkpoint import read_checkpoint
    from a2c.run.training import train

    saved = read_checkpoint(next((trained / "checkpoints").glob("step-*"))).config
    longer = saved.model_copy(update={"total_env_steps": 160})

    def command(run: Path) -> None:
        try:
            train(longer, run, resume=True)
        except (UserError, OSError) as error:
            assert str(error).isprintable()

    assert_nothing_leaves(tmp_path, trained, decoy, command, turn=turn)


@pytest.mark.parametrize("place", ["videos", "export-000000000064", ".export-000000000064.tmp"])
@pytest.mark.parametrize("kind", LINKS)
def test_watch_and_export_write_through_no_link(tmp_path, decoy, catch_run, run_cli, monkeypatch, kind, place):
    """As commands; the encoder and the network's files are stood in for."""
    from a2c.export import export

    monkeypatch.setattr(video, "_Encoder", StandIn)
    monkeypatch.setattr(export, "_write_networks", lambda *_: [])
    run = copy_of(catch_run, tmp_path / "run")
    LINKS[kind](run / place, decoy)
    outside = snapshot(decoy)
    words = ("watch", run, "--episodes", 1) if place == "videos" else ("export", run, "--format", "savedmodel")
    assert_well_ended(run_cli(*words))
    assert snapshot(decoy) == outside


class StandIn:
    """Writes what ffmpeg would."""

    def __init__(self, parts, folder, frames_per_second):
        self.parts = parts

    def write(self, frame):
        pass

    def finish(self):
        for part in self.parts.values():
            part.write_bytes(b"video")

    def kill(self):
        pass


@pytest.mark.parametrize("kind", LINKS)
def test_videos_are_written_through_no_link(tmp_path, decoy, monkeypatch, kind):
    monkeypatch.setattr(video, "_Encoder", StandIn)

    def command(run: Path) -> None:
        targets = [run / "videos" / "x.mp4", run / "videos" / "x.gif"]
        with (
            contextlib.suppress(UserError),
            files.made_folder(targets[0].parent, below=run),
            video.encoding(targets, 30.0, below=run),
        ):
            pass

    assert_nothing_leaves(tmp_path, make_logged(tmp_path / "run"), decoy, command, {kind: LINKS[kind]})


@pytest.mark.parametrize("kind", LINKS)
def test_a_bundle_is_written_through_no_link(tmp_path, decoy, trained, kind):
    from a2c.export.export import export_bundle  # imports TensorFlow

    def command(run: Path) -> None:
        assert export_bundle(run).file.parent == run

    assert_nothing_leaves(tmp_path, trained, decoy, command, {kind: LINKS[kind]})


def write_also(path: Path, name: str, *, below: Path) -> None:
    with files.replacing(path, [name], below=below) as file:
        file.write(b"new")


@pytest.mark.parametrize("kind", LINKS)
def test_the_door_resolves_no_link_below_the_folder(tmp_path, decoy, kind):
    """Each way through it, at each depth; the folder itself may be a link."""
    real = tmp_path / "real"
    home = tmp_path / "home"
    home.symlink_to(real)
    ways = {
        "write_atomically": lambda path: files.write_atomically(path, "new", below=home),
        "write_result": lambda path: files.write_result(path, "new", below=home),
        "create": lambda path: files.create(path, below=home).close(),
        "reopen": lambda path: files.reopen(path, below=home).write(b"new"),
        "append": lambda path: files.reopen(path, append=True, below=home).write(b"new"),
        "remove": lambda path: files.remove(path, below=home),
        "rename": lambda path: files.rename(path, "other", below=home),
        "also": lambda path: write_also(path.with_name("first"), path.name, below=home),
        "make": lambda path: files.make_folder(path / "more", below=home),
    }
    (decoy / "folder" / "b").mkdir()
    for path in ("c", "b/c"):  # what a followed link to the folder would meet
        (decoy / "folder" / path).write_text("precious")
    outside = snapshot(decoy)
    for name, way in ways.items():
        for place in ("a", "a/b", "a/b/c", "a/b/.c.tmp"):
            real.mkdir()
            (real / place).parent.mkdir(parents=True, exist_ok=True)
            LINKS[kind](real / place, decoy)
            with contextlib.suppress(OSError, UserError):
                way(home / "a" / "b" / "c")
            assert snapshot(decoy) == outside, (name, place)
            clear(real)


def test_an_error_of_the_door_names_the_whole_path(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        files.remove(tmp_path / "nothing")
    assert caught.value.filename == str(tmp_path / "nothing")


def test_an_output_beside_a_folder_that_is_not_there(tmp_path, quick_pictures, run_cli):
    run = make_logged(tmp_path / "run")
    ended = run_cli("plot", run, "--out", tmp_path / "nothing" / ".." / "x.png")
    assert_well_ended(ended)


@pytest.fixture
def deep(tmp_path):
    """A folder in a folder, more often than Python's own walk can follow."""
    levels = [tmp_path / "deep"]
    for _ in range(1_100):
        levels.append(levels[-1] / "d")
    for level in levels:
        level.mkdir()
    yield levels[0]
    for level in reversed(levels):
        level.rmdir()


def test_folders_without_an_end_are_refused_in_one_sentence(tmp_path, deep, run_cli):
    ended = run_cli("eval", deep)
    assert_well_ended(ended)
    assert ended.returncode == 2


def test_folders_without_an_end_in_place_of_what_a_killed_export_left(tmp_path, deep):
    left = deep.rename(tmp_path / ".export.tmp")
    try:
        with pytest.raises(FileExistsError), files.new_folder(tmp_path / "export"):
            pass
    finally:
        left.rename(deep)


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("place", ["config.yaml", "metrics.jsonl", "evaluations.jsonl", "videos/a.mp4", "videos"])
def test_odd_things_in_place_of_what_plot_and_report_read(tmp_path, decoy, quick_pictures, run_cli, place, what):
    run = make_logged(tmp_path / "run")
    (run / place).parent.mkdir(exist_ok=True)
    clear(run / place)
    ODD[what](run / place, decoy)
    for command in ("report",) if place.startswith("videos") else ("plot", "report"):  # plots have no videos
        with within_bounds():
            assert_well_ended(run_cli(command, run))


@pytest.mark.parametrize("what", ODD)
def test_odd_things_in_place_of_a_configuration(tmp_path, decoy, what):
    ODD[what](tmp_path / "c.yaml", decoy)
    with within_bounds():
        if what == "empty file":
            load_config(config=tmp_path / "c.yaml")
        else:
            with pytest.raises((UserError, OSError)) as error:  # main() makes one sentence of either
                load_config(config=tmp_path / "c.yaml")
            assert str(error.value).isprintable()


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("place", ["best.npz", "step-000000000128.npz", "step-000000999999.npz"])
def test_odd_things_in_place_of_checkpoints_are_passed_over_or_refused(tmp_path, decoy, trained, place, what):
    from a2c.run.lookup import find_checkpoint

    run = copy_of(trained, tmp_path / "run")
    clear(run / "checkpoints" / place)
    ODD[what](run / "checkpoints" / place, decoy)
    said: list[str] = []
    with within_bounds():
        saved = find_checkpoint(run, said.append)
    assert saved.arrays
    assert place == "best.npz" or place in said[0]
    with within_bounds(), pytest.raises((UserError, OSError)):  # main() makes one sentence of either
        find_checkpoint(run / "checkpoints" / place)


@pytest.mark.parametrize("what", ODD)
def test_odd_things_in_place_of_a_bundle_are_one_sentence(tmp_path, decoy, what):
    from a2c.run.lookup import find_checkpoint

    ODD[what](tmp_path / "agent.a2c", decoy)
    with within_bounds(), pytest.raises((UserError, OSError)) as error:  # main() makes one sentence of either
        find_checkpoint(tmp_path / "agent.a2c")
    assert str(error.value).isprintable()


OPTIONAL = ("jax", "brotli", "chardet", "simplejson", "pydot", "tblib", "orbax", "botocore", "fsspec", "mine")
INSTALLED = ("--env", "gymnasium.envs.classic_control:CartPole-v1", "--config", "vector")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "imported"),
    [(("--env", "Chain"), []), (INSTALLED, []), (("--env", "Chain", "--wrapper", "mine:Wrapper"), ["mine"])],
)
def test_modules_of_the_current_folder_are_imported_only_if_they_are_named(trained, tmp_path, words, imported):
    """TensorFlow and others try to import what may not be installed."""
    run, log = copy_of(trained, tmp_path / "run"), tmp_path / "imported"
    for name in OPTIONAL:
        (run / f"{name}.py").write_text(f"open({str(log)!r}, 'a').write('{name} ')\nraise ImportError('decoy')\n")
    command = [sys.executable, "-P", "-m", "a2c", "train", *words, "--steps", "160", "--run-dir", "new"]
    ended = subprocess.run(command, cwd=run, capture_output=True, text=True, timeout=120)
    assert ended.returncode == (2 if imported else 0), ended.stderr
    assert (log.read_text().split() if log.exists() else []) == imported


# --- YAML ---------------------------------------------------------------------------------------------------------


def repeated(inner: str, outer: str, levels: int) -> str:
    """Each level holds the one before nine times."""
    lines = [f"  a0: &a0 {inner}"]
    for level in range(1, levels):
        lines.append(f"  a{level}: &a{level} " + outer.format(", ".join([f"*a{level - 1}"] * 9)))
    return "\n".join(lines) + "\n"


EXPLODING = {
    "lists": "x:\n" + repeated("[x]", "[{}]", 12),
    "lists under provenance": "provenance:\n" + repeated("[x]", "[{}]", 12),
    "merge keys": "x:\n" + repeated("{k: v}", "{{<<: [{}]}}", 12),
    "merge keys under provenance": "provenance:\n" + repeated("{k: v}", "{{<<: [{}]}}", 12),
    "long texts": "x:\n" + repeated(f"[{'y' * 500}]", "[{}]", 4),
    "itself": "x: &x [*x]\n",
    "itself by a merge": "x: &x {<<: *x}\n",
    "pairs": "x: !!pairs [a: &a [1], b: *a]\n",
    "ordered": "x: !!omap [a: 1]\n",
    "a set": "x: !!set {a}\n",
    "code": "x: !!python/object/apply:os.system ['touch canary']\n",
    "a tag of one's own": "x: !mine 1\n",
    "no tag": "x: ! 1\n",
    "bytes": "x: !!binary aGVsbG8=\n",
    "deep": "x: " + "[" * 500 + "]" * 500 + "\n",
    "deep by aliases": "x:\n"
    + "  a0: &a0 [[[[[[]]]]]]\n"
    + "".join(f"  a{level}: &a{level} [[[[*a{level - 1}]]]]\n" for level in range(1, 9)),
    "wide": "x: [" + "1," * 30_000 + "]\n",
    "long hexadecimal number": f"y: 0x{'f' * 15_000}\n",
    "long number": f"y: {'9' * 15_000}\n",
    "long float": f"y: {'9' * 15_000}.5\n",
    "long number as a key": f"y: {{0x{'f' * 15_000}: 1}}\n",
    "long binary number": f"y: 0b{'1' * 15_000}\n",
    "large": "#" * 200_000 + "\n",
}


@pytest.mark.parametrize("more", EXPLODING.values(), ids=EXPLODING)
def test_yaml_that_explodes_is_refused_at_once(tmp_path, quick_pictures, run_cli, more):
    """In a run's configuration and in a user's own."""
    run = make_logged(tmp_path / "run")
    settings = (run / "config.yaml").read_text().partition("provenance:")[0]
    (run / "config.yaml").write_text(settings + more)
    for words in (("report", run), ("plot", run), ("train", "--config", run / "config.yaml")):
        with within_bounds():
            ended = run_cli(*words, cwd=tmp_path)
        assert_well_ended(ended)
        assert ended.returncode == 2
        assert "config.yaml" in ended.stderr
    assert not (tmp_path / "canary").exists()


def test_an_environment_of_one_run_is_no_reason_to_trust_the_algorithm_of_another(tmp_path, quick_pictures, run_cli):
    (tmp_path / "evil.py").write_text("open('pwned', 'w')")
    for name, section in (("one", {"env": {"id": "evil:Thing"}}), ("two", {"algorithm": {"name": "evil:Thing"}})):
        run = make_logged(tmp_path / name)
        values = yaml.safe_load((run / "config.yaml").read_text())
        (run / "config.yaml").write_text(yaml.safe_dump({**values, **section}))
    result = run_cli("report", "one", "two", "--out", "report.html", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "a2c train --env evil:Thing" in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("key", ["seed", "env.num_envs", "x.y"])
@pytest.mark.parametrize("digits", [20, 90, 101, 5_000])
def test_numbers_of_any_length_are_no_traceback(tmp_path, quick_pictures, run_cli, key, digits):
    run = make_logged(tmp_path / "run")
    values = yaml.safe_load((run / "config.yaml").read_text())
    section, _, leaf = key.rpartition(".")
    (values.setdefault(section, {}) if section else values)[leaf] = "NUMBER"
    (run / "config.yaml").write_text(yaml.safe_dump(values).replace("NUMBER", f"0x{'f' * digits}"))
    ended = run_cli("report", run)
    assert_well_ended(ended)
    assert (ended.returncode == 2) == (digits > 98)


def test_plain_yaml_is_read_as_before():
    text = "a: &a {x: 1, y: [1.5, true, null, ~]}\nb: {<<: *a, x: 2}\nc: [*a, 010, 1:30, 0x10]\n"
    assert load_yaml(text) == {
        "a": {"x": 1, "y": [1.5, True, None, None]},
        "b": {"x": 2, "y": [1.5, True, None, None]},
        "c": [{"x": 1, "y": [1.5, True, None, None]}, "010", "1:30", 16],
    }


@pytest.mark.parametrize(
    "text", ["[" * 1_990, '{"env_steps": 1e999}', '{"env_steps": -1}', '{"env_steps": "1"}', "[1]", ""]
)
def test_a_last_line_that_is_none_counts_as_no_step(tmp_path, text):
    from a2c.analysis.arms import steps_done

    (tmp_path / "metrics.jsonl").write_text(f'{{"env_steps": 5}}\n{text}\n')
    assert steps_done(tmp_path) == (0 if text else 5)


@pytest.mark.parametrize(("limit", "value"), [("MOST_LINES", 2), ("LARGEST_LOG", 60)])
def test_a_log_beyond_a_limit_is_refused_and_never_cut(tmp_path, monkeypatch, limit, value):
    file = tmp_path / "metrics.jsonl"
    line = '{"env_steps": 5, "more": 1}\n'  # 28 bytes
    monkeypatch.setattr(logs, limit, value)
    file.write_text(line * 2)
    assert len(list(logs.logged(file))) == 2
    file.write_text(line * 3)
    with pytest.raises(UserError, match="cannot be read"):
        list(logs.logged(file))


def test_a_line_with_too_many_keys_counts_as_damaged(tmp_path):
    file, told = tmp_path / "metrics.jsonl", []
    lines = [{"env_steps": n, **{f"k{k}": 0 for k in range(logs.MOST_KEYS - 1 + more)}} for n, more in ((1, 0), (2, 1))]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [line["env_steps"] for line in logs.logged(file, told.append)] == [1]
    assert "damaged lines are left out, 1 in all" in told[0]


def test_a_sparse_checkpoint_is_refused_before_it_is_read(tmp_path):
    from a2c.run.archive import LARGEST_WITH_HOLES, DamagedError, read_archive

    ODD["sparse file"](tmp_path / "x.npz", tmp_path)
    os.truncate(tmp_path / "x.npz", LARGEST_WITH_HOLES + 1)
    with pytest.raises(DamagedError, match="sparse"):
        read_archive(tmp_path / "x.npz")


# --- showing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_folder_steers_a_terminal(tmp_path, quick_pictures, run_cli, name):
    run = make_logged(tmp_path / name)
    other = make_logged(tmp_path / "other")
    commands = [
        ("plot", run),
        ("report", run),
        ("plot", run, other),
        ("report", run, other),
        ("eval", tmp_path / f"{name}x"),
    ]
    commands += [("train", "--config", run), ("resume", run / "config.yaml"), ("report", run / "config.yaml")]
    commands += [
        ("plot", run, "--out", run / "x.txt"),
        ("watch", tmp_path / f"{name}x"),
        ("export", tmp_path / f"{name}x"),
    ]
    for words in commands:
        assert_well_ended(run_cli(*words, cwd=tmp_path))
    page = (run / "report.html").read_text()
    assert all(line.isprintable() for line in page.split("\n"))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_value_of_a_file_steers_a_terminal_or_a_page(tmp_path, quick_pictures, run_cli, text):
    plain = text.encode(errors="replace").decode()
    run = make_run(tmp_path / "run", [1.0], evaluations=[evaluation(100, 1.0, policy=text, protocol={text: text})])
    values = yaml.safe_load((run / "config.yaml").read_text())
    values["model"][plain] = plain
    values["provenance"] = {plain: plain}
    (run / "config.yaml").write_text(yaml.safe_dump(values))
    for words in (("plot", run), ("report", run), ("train", "--config", run / "config.yaml")):
        assert_well_ended(run_cli(*words, cwd=tmp_path))
    assert all(line.isprintable() for line in (run / "report.html").read_text().split("\n"))


def test_a_terminal_gets_our_own_colours_and_nobody_elses():
    from a2c.cli.console import Terminal, cell

    for text in HOSTILE:
        stream = io.StringIO()
        console = Terminal(file=stream, force_terminal=True, highlight=False, width=200)
        console.print("[bold]ours[/]", cell(text))
        console.print(text, markup=False)
        rest = stream.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
        assert all(line.isprintable() for line in rest.split("\n")), rest
        assert "\x1b[1mours" in stream.getvalue()


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (HOSTILE[0], "eval"),  # which draws nothing
        *(
            pytest.param(name, command, marks=pytest.mark.integration)
            for name in HOSTILE
            for command in ("report", "plot", "eval", "compare")
        ),
    ],
)
def test_on_a_pseudo_terminal_no_name_steers_it(tmp_path, name, command):
    run = make_logged(tmp_path / name)
    said = said_on_a_terminal(["a2c", command, run.name], cwd=tmp_path)
    assert said
    assert all(line.isprintable() for line in said.replace("\r\n", "\n").split("\n")), said


def said_on_a_terminal(words: list[str], cwd: Path) -> str:
    """What a command prints on a terminal without colours or a cursor to move, so that it steers nothing itself."""
    ours, its = pty.openpty()
    plain = {**os.environ, "TERM": "dumb", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", *words], stdin=its, stdout=its, stderr=its, cwd=cwd, env=plain
    ) as process:
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):  # Linux reports the end so
            while part := os.read(ours, 2**16):
                said += part
        process.wait(60)
    os.close(ours)
    return said.decode(errors="surrogateescape")


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_printable_stays_and_all_else_is_escaped(text):
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    assert printable("Käse 名 ♥ a b") == "Käse 名 ♥ a b"
    assert shown(text).isprintable()


@pytest.mark.parametrize(("path", "words"), [("-r", "./-r"), ("a b/r", "'a b/r'"), ("r", "r")])
def test_a_path_is_shown_as_it_is_typed_in_a_command(path, words):
    assert typed(Path(path)) == words


def test_the_page_of_a_strangers_run_is_bounded(tmp_path, quick_pictures):
    """Whatever its evaluations say, each under a protocol of its own; `&` takes five letters of HTML."""
    long = "&" * 200
    protocols = ({f"{j}{long}": f"{i}{long}" for j in range(50)} for i in range(300))
    judged = [evaluation(i, 1.0, policy=long, protocol=protocol) for i, protocol in enumerate(protocols, 1)]
    page = page_of_run(make_run(tmp_path / "run", [1.0], evaluations=judged))
    assert len(page) < 11_300_000  # the pictures are 0.65 MB more
    assert page.count("<tr>") < 6_000


def page_of_run(run: Path) -> str:
    from a2c.show.page import make_page
    from a2c.show.runs import read_runs

    return make_page(read_runs([run]))
