"""The command line as a stranger meets it: help, listings, and one sentence with exit code 2 for every mistake."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_one_sentence, heed_sigint, small_config

import a2c
from a2c.algorithms.algorithm import Update
from a2c.cli.options import number_of_steps
from a2c.run.training import Run, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "catch"
    config = small_config(env={"id": "Catch"}, total_env_steps=256, checkpoint={"every_updates": 4})
    train(config, folder)
    return folder


QUICK = ["--help", "--version", "envs", *(f"{name} --help" for name in "train launch bench doctor watch".split())]
NOWHERE = ["eval . nowhere", "resume nowhere", "watch nowhere", "export nowhere"]
NOT_THERE = {
    "train --run-dir file": "file is a file; name a folder",
    "train --run-dir file/run": "file is not a folder",
    "train --run-dir /proc/run": "The folder /proc/run cannot be used: /proc cannot be written to",
    "train --run-dir .": ". holds other files; name another folder",
    "runs nowhere": "There is no folder nowhere; name one that holds runs",
    "train --env Pendulum-v1": "only a Discrete action space is allowed",
    f"tune --env Catch --seed {2**63 - 1} --judge-seeds 1": f"seed={2**63} is not allowed",
    "compare --loop --only why": "--only would change nothing in --loop",
    "compare a2c ppo --algorithm dqn": "--algorithm would change nothing in a comparison of algorithms",
}
NO_GAME = ["train --env Pongg", "bench --env Pongg", "compare --eager --env Catch --env Pongg"]


def test_quick_answers_and_wrong_names_are_told_without_tensorflow(tmp_path):
    """One process runs them all, and looks after each whether TensorFlow was imported."""
    code = """
import contextlib, io, json, sys
from a2c.cli import main
ended = {}
for words in json.load(sys.stdin):
    sys.argv[1:] = words.split()
    said = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(said[0]), contextlib.redirect_stderr(said[1]):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    for stream in said:
        stream.flush()
    texts = [stream.buffer.getvalue().decode() for stream in said]
    ended[words] = [code, *texts, sorted({"tensorflow", "keras"} & set(sys.modules))]
print(json.dumps(ended))
"""
    (tmp_path / "file").touch()
    commands = json.dumps([*QUICK, *NO_GAME, *NOWHERE, *NOT_THERE])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=commands, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    for words, (code, output, errors, imported) in ended.items():
        assert imported == [], words
        assert code == (0 if words in QUICK else 2), errors
        assert bool(output) == (words in QUICK)
        assert words in QUICK or (errors.startswith("a2c: ") and errors.count("\n") == 1), errors
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for words in NO_GAME:
        assert "There is no environment 'Pongg' (env.id)" in ended[words][2]
        assert "Did you mean Pong" in ended[words][2]
    for words in NOWHERE:
        assert "There is no run folder or checkpoint nowhere." in ended[words][2]
    for words, sentence in NOT_THERE.items():
        assert sentence in ended[words][2]
    assert ended["--version"][1:3] == [f"a2c {a2c.__version__}\n", ""]
    assert ended.keys() == {*QUICK, *NO_GAME, *NOWHERE, *NOT_THERE}


def test_spaces_in_a_path_stay_in_a_sentence(run_cli, tmp_path):
    (tmp_path / "a  b").mkdir()
    (tmp_path / "a  b" / "mine.txt").touch()
    ended = run_cli("train", "--env", "Catch", "--run-dir", "a  b", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("a2c: a  b holds other files; ")


def test_help_names_the_algorithms(run_cli):
    assert "(A2C, PPO, A3C, TRPO, DQN, SAC)" in " ".join(run_cli("--help").stdout.split())


def test_help_names_the_stable_flags(run_cli):
    words = set(run_cli("train", "--help").stdout.replace(",", " ").split())
    for flag in "--config --env --steps --seed --run-dir --eager --mode --set --resume --quiet".split():
        assert flag in words


def test_envs_lists_every_game_and_as_json_too(run_cli):
    games = json.loads(run_cli("envs", "--json").stdout)
    pong = next(game for game in games if game["name"] == "Pong")
    assert pong["id"] == "ALE/Pong-v5"
    assert (pong["num_actions"], pong["random"], pong["human"]) == (6, -20.7, 14.6)
    assert sum(game["human"] is not None for game in games) == 57
    text = run_cli("envs").stdout
    assert all(game["name"] in text for game in games)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("--env Po", "Pong"), ("--env Ca", "Catch"), ("--config po", "pong"), ("--set optimizer.l", "learning_rate=")],
)
def test_shell_completion_knows_games_presets_and_keys(typed, offered):
    words = f"a2c train {typed}"
    bash = {"_A2C_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    script = Path(sys.executable).parent / "a2c"
    result = subprocess.run([script], capture_output=True, text=True, timeout=300, env={**os.environ, **bash})
    assert offered in result.stdout


@pytest.mark.parametrize(
    ("text", "steps"),
    [("1500", 1500), ("1_500", 1500), ("1.5e3", 1500), ("8.2M", 8_200_000), ("1.005K", 1005), (2**63 - 1, 2**63 - 1)],
)
def test_steps_may_be_written_as_people_write_them(text, steps):
    assert number_of_steps(text) == steps


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "--env", "no.such.module:Own-v0", "--config", "atari"], "no.such.module"),
        (["train", "--env", "Pong", "--config", "nothing"], "There is no preset or file 'nothing'"),
        (["train", "--env", "Pong", "--set", "a.b=1"], "There is no key 'a.b'"),
        (["train", "--env", "Pong", "--set", "env.num_envs=0"], "env.num_envs=0"),
        (["train", "--env", "Pong", "--steps", "0"], "--steps"),
        (["train", "--env", "Pong", "--seed", "-1"], "seed=-1"),
        (["train", "--env", "Pong", "--mode", "turbo"], "turbo"),
        (["train", "--env", "Pong", "--eager", "--mode", "xla"], "contradict"),
        (["train", "--env", "Pong", "--resume"], "--auto-resume needs --run-dir"),
        (["train", "--env", "Qbert", "--run-dir", "/proc/nothing"], "/proc/nothing"),
        (
            ["train", "--env", "CartPole-v1", "--config", "atari", "--set", "model.name=nature"],
            "model.name=nature does not fit",
        ),
        (
            "train --env Qbert --config atari --set env.screen_size=20 --set env.num_envs=2".split(),
            "raise env.screen_size",
        ),
        (["train", "--lr", "3"], "the setting optimizer.learning_rate is changed by --set optimizer.learning_rate="),
        (["train", "--env", "Pong", "--set", "optimizer.lr=1"], "Did you mean optimizer.learning_rate?"),
        (["train", "--steps", "3Q"], "'3Q' is not allowed: it should be a whole number from 1, such as 500k or 2M"),
        (["train", "--steps", "0.5"], "--steps"),
        (["train", "--steps", "_5"], "--steps"),
        (["train", "--seed"], "requires an argument; see `a2c train --help`"),
        (["train", "--env", "Catch", "--seeds", "2", "--seed", str(2**63 - 1)], f"seed={2**63} is not allowed"),
        (["compare", "a2c", "ppo", "--threshold", "nan"], "it should be a finite number"),
        (["tune", "--env", "Catch", "--minutes", "nan"], "it should be a finite number"),
        (["tune", "--env", "Catch", "--minutes", "-1"], "'-1' is not allowed: it should be 0 or more"),
        (["watch", "runs", "--out", "x.gif", "--json", "x.gif"], "name two files"),
        (["plot", "runs", "--out", "x.png", "--json", "x.png"], "name two files"),
        (["plot", "runs", "--out", "x.png", "--json", "/proc/self/cwd/x.png"], "name two files"),
        (["train", "-e", "Pong"], "No such option: -e; see `a2c train --help`"),
        (["resume", "r", "--lr", "1"], "; see `a2c resume --help`"),
        (["train", "--steps", "1e99"], "--steps"),
        (["train", "--seed", "x"], "it should be a whole number; see `a2c train --help`"),
        (["eval", "nothing"], "There is no run folder or checkpoint nothing"),
        (["eval", "."], "holds no run"),
        (["eval", ".", "--episodes", "0"], "it should be 1 or more; see `a2c eval --help`"),
        (["eval"], "PATH"),
        (["eval", ".", "--protocol", "mine"], "machado"),
        (["trian"], "No such command 'trian'. Did you mean 'train'? See `a2c --help`."),
        (["train", "--set", "env.id=3"], "env.id=3"),
        (["train", "--set", "seed=2020-13-45"], "seed='2020-13-45' is not allowed"),
        (["train", "--set", "env.num_envs=9999999999"], "env.num_envs"),
        (["train", "--env", "x:y:z", "--config", "atari"], "x:y"),
        (["train", "--env", ""], "What follows '--env' is empty; give it a value."),
        (["train", "--env", "Catch", "--run-dir="], "--run-dir is empty; give it a value."),
        (["train", "--set", "env.id="], "env.id is empty"),
        (
            ["train", "--env", "Catch", "--set", "model.conv_layers=[[4, 90, 1]]", "--set", "model.name=small"],
            "smaller",
        ),
        (["train", "--env", "Pong", "--run-dir", "n" * 300], "File name too long"),
        (["resume", "n" * 300], "File name too long"),
        (["eval", ".", "--json", "/"], "--json /"),
        (["eval", ".", "--json", ""], "--json"),
        (["eval", ""], "What follows 'eval' is empty"),
        (["bench", "--json", "no/folder/b.json"], "a folder that exists"),
        (["bench", "--env", "Catch", "--steps", "2559"], "take 2,560"),
        (["bench", "--env", "Catch", "--eager", "--mode", "xla"], "contradict"),
        (["bench", "--env", "Catch", "--compare-to", "nothing.json"], "nothing.json cannot be read"),
        (["bench", "--env", "Catch", "--compare-to", __file__], "was not written by `a2c bench --json`"),
    ],
)
def test_a_mistake_is_one_sentence_on_stderr_and_exit_code_2(tmp_path, run_cli, arguments, sentence):
    """In this process, where TensorFlow runs already: what `main` does with an error is all that counts."""
    tf.zeros(1)  # else the first preset that is refused would decide on its threads, and the next be told so
    assert_one_sentence(run_cli(*arguments, cwd=tmp_path), 2, sentence)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.integration
@pytest.mark.parametrize("width", ["0", "\u00b2", "wide", "1" * 9])
def test_a_width_that_is_none_hides_nothing(tmp_path, width):
    """rich prints nothing in no columns; it and Typer fail on what is no number."""
    environment = {**os.environ, "COLUMNS": width, "LINES": width, "TERMINAL_WIDTH": width}
    for words, told in (("eval nowhere", "There is no run folder or checkpoint nowhere"), ("runs --help", "List runs")):
        command = [sys.executable, "-m", "a2c", *words.split()]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=120)
        assert told in done.stdout + done.stderr


@pytest.mark.integration
def test_the_package_is_imported_without_chatter():
    code = "from a2c import evaluate, train; print(train.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("train\n", "")


@pytest.mark.integration
def test_a_mistake_prints_no_chatter_and_no_traceback(tmp_path):
    """In a process of its own, in which TensorFlow starts."""
    arguments = ["train", "--env", "Qbert", "--config", "atari", "--set", "env.screen_size=20"]
    command = [sys.executable, "-m", "a2c", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert_one_sentence(result, 2, "a2c: The images are too small")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("door", "frozen"),
    [("from a2c.quiet import fast; fast('a2c.run.training')", True), ("from a2c import train", False)],
)
def test_the_fast_import_leaves_no_traces(door, frozen):
    """In a process of its own: what was hidden from Keras can be imported later, and garbage is collected again."""
    code = f"""{door}
import gc, matplotlib.figure, scipy.stats
assert gc.isenabled() and (gc.get_freeze_count() > 0) is {frozen}
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_training_prints_plain_lines_without_a_terminal_and_only_what_is_asked_for(run_cli, tmp_path):
    settings = ("--env", "Chain", "--steps", "160", "--set", "logging.every_updates=1")
    result = run_cli("train", *settings, "--run-dir", "r", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == "Chain with the recipe 'atari', seed 0, in r"
    assert sum("steps/s" in line for line in lines) == 2
    assert "a2c eval r" in result.stdout
    quiet = run_cli("train", *settings, "--run-dir", "q", "--quiet", cwd=tmp_path)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_a_run_that_a_signal_stopped_tells_how_to_resume_and_a_quiet_one_by_its_exit_code(
    run_cli, tmp_path, monkeypatch
):
    learn = Run.learn

    def interrupted(run: Run) -> Update:
        os.kill(os.getpid(), signal.SIGINT)
        return learn(run)

    monkeypatch.setattr(Run, "learn", interrupted)
    command = ("train", "--env", "Chain", "--steps", "800", "--eager", "--run-dir")
    assert run_cli(*command, "q", "--quiet", cwd=tmp_path) == (128 + signal.SIGINT, "", "")
    stopped = run_cli(*command, "r", cwd=tmp_path)
    assert (stopped.returncode, stopped.stderr) == (128 + signal.SIGINT, "")
    assert stopped.stdout.splitlines()[-1] == "  a2c resume r"


def test_the_default_run_folder_names_env_seed_and_time(run_cli, tmp_path):
    run_cli("train", "--env", "Chain", "--steps", "80", "--seed", "5", "--eager", cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("chain-s5-20")


def test_eval_prints_and_writes_the_same_twice_and_greedy_is_greedy(run_cli, trained, tmp_path):
    first = run_cli("eval", trained, "--episodes", "5", "--seed", "3", "--json", "a.json", cwd=tmp_path)
    second = run_cli("eval", trained, "--episodes", "5", "--seed", "3", "--json", "b.json", cwd=tmp_path)
    assert first.returncode == second.returncode == 0, first.stderr
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert a == b
    assert a["episodes"] == len(a["returns"]) == 5
    assert a["mean"] == pytest.approx(np.mean(a["returns"]))
    assert a["standard_error"] == pytest.approx(np.std(a["returns"], ddof=1) / np.sqrt(5))
    assert a["policy"] == "sampled"
    assert "mean" in first.stdout
    assert "95 % interval" in first.stdout
    greedy = run_cli("eval", trained, "--episodes", "3", "--greedy", "--json", "c.json", cwd=tmp_path)
    assert greedy.returncode == 0
    assert json.loads((tmp_path / "c.json").read_text())["policy"] == "greedy"


def test_eval_refuses_a_target_it_cannot_write(run_cli, trained, tmp_path):
    result = run_cli("eval", trained, "--json", "no/such/folder/e.json", cwd=tmp_path)
    assert result.returncode == 2
    assert "a folder that exists" in result.stderr


@pytest.mark.integration
def test_bench_writes_what_a_later_one_compares_with_and_leaves_nothing_else(run_cli, tmp_path):
    settings = ("bench", "--env", "Chain", "--steps", "800")
    first = run_cli(*settings, "--json", "a.json", cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("Chain with the recipe 'atari', graph, float32\n")
    assert "in the 400 steps whose time is shared out above." in first.stdout
    assert "now / then" not in first.stdout
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["config"]["env"]["id"] == "Chain"
    assert f"{written['median']['steps_per_second']:,.0f}" in first.stdout
    other = run_cli(*settings, "--compare-to", "a.json", "--eager", cwd=tmp_path)
    assert other.returncode == 0
    assert "now / then" in other.stdout
    assert other.stderr.startswith("a2c: the ratios are not of the code alone, since a.json is of another runtime.mode")
    assert other.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_train_resume_goes_on_and_refuses_another_configuration(run_cli, tmp_path):
    settings = ("train", "--env", "Chain", "--eager", "--run-dir", "r", "--resume")
    first = run_cli(*settings, "--steps", "160", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    longer = run_cli(*settings, "--steps", "240", cwd=tmp_path)
    assert longer.returncode == 0, longer.stderr
    assert "240 steps" in longer.stdout
    again = run_cli("train", "--run-dir", "r", cwd=tmp_path)
    assert again.returncode == 2
    assert "holds a run already" in again.stderr
    other = run_cli(*settings, "--seed", "9", cwd=tmp_path)
    assert other.returncode == 2
    assert "seed=0, not 9" in other.stderr
    back = run_cli("resume", "r", "--steps", "100", cwd=tmp_path)
    assert back.returncode == 2
    assert "240 steps already" in back.stderr
    same = run_cli(*settings, cwd=tmp_path)
    assert same.returncode == 0, same.stderr
    assert "resuming r to 240 steps" in same.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [("envs >&-", 0), ("eval nowhere 2>&-", 2), ("envs <&- >&- 2>&-", 0), ("eval nowhere 2>/dev/full", 2)],
)
def test_a_stream_that_is_closed_or_full_changes_no_exit_code(words, code, tmp_path):
    command = f"exec {sys.executable} -m a2c {words}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("library", ["pydantic", "rich"])  # of the configuration, of the command line
def test_ctrl_c_while_it_is_being_imported_prints_nothing(library, tmp_path):
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    command = [sys.executable, "-m", "a2c", "envs"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, env=environment, preexec_fn=heed_sigint, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_later_import_ends_the_process_though_the_import_hides_what_a_handler_raises(
    number, tmp_path
):
    (tmp_path / "hiding.py").write_text(f"""
import signal
try:
    signal.raise_signal({number:d})
except BaseException:
    raise ImportError("initialization failed")
""")
    code = """
import signal
from a2c.cli import _leave
from a2c.quiet import fast
signal.signal(signal.SIGTERM, _leave)
fast("colorsys")
assert signal.getsignal(signal.SIGTERM) is _leave
fast("hiding")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, preexec_fn=heed_sigint, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (-number, b"", b"")


def test_a_folder_that_was_deleted_is_told(tmp_path):
    """A shell may still be in it."""
    code = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); from a2c.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "envs"], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "a2c: The current folder does not exist any more; change to another.\n"
