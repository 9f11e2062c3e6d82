"""Real workers on this machine: who they are told to be, where they run, what they say, and how they all end."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import assert_one_sentence, heed_sigint

from a2c.execution.launch import launch
from a2c.execution.signals import StopSignal, noted

PATIENCE = 30.0
cores = sorted(os.sched_getaffinity(0))

REPORT = """
import json, os, pathlib, sys
told = json.loads(os.environ["TF_CONFIG"])
told |= {"arguments": sys.argv[2:], "cores": sorted(os.sched_getaffinity(0)), "stdin": sys.stdin.read()}
told |= {"alone": os.getsid(0) == os.getpid()}
(pathlib.Path(sys.argv[1]) / str(told["task"]["index"])).write_text(json.dumps(told))
"""
INDEX = """
import json, os, pathlib, signal, subprocess, sys, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
folder = pathlib.Path(sys.argv[1])
def note(name):
    (folder / f".{name}").write_text(str(os.getpid()))
    (folder / f".{name}").rename(folder / name)
"""


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", program, *map(str, arguments)]


def reports(folder: Path, workers: int, arguments: tuple[str, ...] = ()) -> list[dict]:
    assert launch(arguments, workers, command=python(REPORT, folder)) == 0
    return [json.loads((folder / str(index)).read_text()) for index in range(workers)]


def pids(folder: Path) -> list[int]:
    return [int(file.read_text()) for file in folder.glob("[!.]*")]


def wait_for(come: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not come():
        assert time.monotonic() < deadline, "never came"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """A zombie, which nobody has waited for, counts."""
    return Path(f"/proc/{pid}").exists()


def test_each_worker_is_told_who_it_is_and_has_cores_of_its_own(tmp_path):
    told = reports(tmp_path, 2)
    assert [each["task"] for each in told] == [{"type": "worker", "index": index} for index in (0, 1)]
    assert told[0]["cluster"] == told[1]["cluster"]
    assert len(set(told[0]["cluster"]["worker"])) == 2
    assert all(each["stdin"] == "" and each["alone"] for each in told)
    if len(cores) > 1:
        assert told[0]["cores"] + told[1]["cores"] == cores
        assert abs(len(told[0]["cores"]) - len(told[1]["cores"])) <= 1
    assert sorted(os.sched_getaffinity(0)) == cores


def test_one_worker_has_all_cores_and_too_many_share_them_evenly(tmp_path):
    (alone,) = reports(tmp_path, 1)
    assert alone["cores"] == cores
    crowd = reports(tmp_path, 2 * len(cores) + 1)
    assert [each["cores"] for each in crowd] == [[core] for core in [*cores, *cores, cores[0]]]


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (("train", "--env", "Catch"), ["--strategy", "multiworker"]),
        (("train", "--strategy", "mirrored"), []),
        (("train", "--strategy=mirrored"), []),
        (("resume", "runs/x"), []),
    ],
)
def test_train_is_told_to_use_the_cluster_unless_it_is_told_otherwise(tmp_path, arguments, added):
    (told,) = reports(tmp_path, 1, arguments)
    assert told["arguments"] == [*arguments, *added]


def test_the_workers_can_meet_at_the_addresses_they_are_given():
    meet = "from a2c.execution.cluster import find_cluster, listen; import time; c = find_cluster(); c.meet(20); "
    serve = "d = listen(int(c.addresses[c.index].split(':')[1])); time.sleep(2)"  # as TensorFlow does
    assert launch((), 3, command=python(meet + serve)) == 0


def test_the_chief_speaks_for_itself_and_the_others_with_their_names(capfd):
    talk = """
    print("out", index, flush=True)
    print("err", index, file=sys.stderr, flush=True)
    os.write(1, b"\\xff no end of line")
    if index:
        subprocess.Popen(["sh", "-c", "sleep 0.3; printf ', and late'"])
    """
    assert launch((), 2, command=python(INDEX + textwrap.dedent(talk), "")) == 0
    out, err = capfd.readouterr()
    assert out.splitlines() == ["out 0", "\ufffd no end of line"]
    lines = err.splitlines()
    lines.remove("err 0")  # at any place
    assert lines == ["worker 1: out 1", "worker 1: err 1", "worker 1: \ufffd no end of line, and late"]


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("sys.exit(0)", 0, []),
        ("sys.exit(3 * (index == 1))", 3, []),
        ("sys.exit(5) if index == 1 else (time.sleep(20), sys.exit(7))", 5, []),  # the first one
        (
            "os.kill(os.getpid(), signal.SIGKILL) if index == 1 else (time.sleep(20), sys.exit(7))",
            128 + signal.SIGKILL,
            ["worker 1 was ended by signal 9 (Killed)."],
        ),
    ],
)
def test_the_exit_code_is_that_of_the_first_worker_that_failed(tmp_path, program, code, said):
    warnings = []
    assert launch((), 3, command=python(INDEX + program, tmp_path), warn=warnings.append) == code
    assert warnings == said


STUBBORN = """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
own = subprocess.Popen(["sleep", "100"])  # of this worker: is to go with it
(folder / f"own-{index}").write_text(str(own.pid))
note(f"worker-{index}")
"""


@pytest.mark.integration
def test_who_does_not_notice_that_another_failed_is_killed_with_all_that_it_started(tmp_path):
    program = f"""
if index == 1:
    while not (folder / "worker-0").exists():
        time.sleep(0.02)
    sys.exit(4)
{STUBBORN}
time.sleep(100)
"""
    warnings = []
    started = time.monotonic()
    assert launch((), 2, command=python(INDEX + program, tmp_path), grace=0.5, warn=warnings.append) == 4
    assert time.monotonic() - started < 50
    assert warnings == ["worker 0 went on for 0.5 seconds after another had failed: killed."]
    assert len(pids(tmp_path)) == 2
    wait_for(lambda: not any(map(lives, pids(tmp_path))))


def test_who_notices_in_time_ends_as_it_likes(tmp_path):
    program = """
if index == 1:
    sys.exit(4)
time.sleep(1)
note("saved")
"""
    assert launch((), 2, command=python(INDEX + program, tmp_path)) == 4
    assert (tmp_path / "saved").exists()


@pytest.mark.integration
def test_nobody_is_left_where_launch_itself_fails(tmp_path):
    program = f"""
{STUBBORN}
while index == 1 and not (folder / "worker-0").exists():
    time.sleep(0.02)
if index == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(100)
"""

    def refuse(sentence: str) -> None:
        raise RuntimeError(sentence)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="worker 1 was ended"):
        launch((), 2, command=python(INDEX + program, tmp_path), warn=refuse)
    chief = [int((tmp_path / name).read_text()) for name in ("worker-0", "own-0")]
    wait_for(lambda: not any(map(lives, chief)))
    assert signal.getsignal(signal.SIGTERM) is before


# --- signals ------------------------------------------------------------------------------------------------

LAUNCHER = """
import sys
from a2c.execution.launch import launch
command = [sys.executable, "-c", sys.argv[1], *sys.argv[2:]]
sys.exit(launch((), 2, command=command, warn=lambda sentence: print(sentence, file=sys.stderr)))
"""
SAVING = """
from a2c.execution.signals import StopSignal
with StopSignal() as stop:
    note(f"worker-{index}")
    while stop.signal is None:
        time.sleep(0.02)
    time.sleep(0.3)  # to save takes longer than the launcher needs to pass the signal on
    note(f"saved-{index}")
sys.exit(128 + stop.signal)
"""


def start(program: str, folder: Path, **options) -> subprocess.Popen[bytes]:
    launcher = subprocess.Popen(python(LAUNCHER, INDEX + program, folder), stderr=subprocess.PIPE, **options)
    wait_for(lambda: len(list(folder.glob("worker-*"))) == 2)
    return launcher


@pytest.mark.parametrize("number", StopSignal.SIGNALS)
def test_a_signal_reaches_every_worker_and_all_may_save(tmp_path, number):
    with start(SAVING, tmp_path, preexec_fn=heed_sigint) as launcher:
        launcher.send_signal(number)
        _, errors = launcher.communicate(timeout=PATIENCE)
    assert (launcher.returncode, errors) == (128 + number, b"")
    assert len(list(tmp_path.glob("saved-*"))) == 2
    assert not any(map(lives, pids(tmp_path)))


def test_sigterm_to_every_process_lets_all_save_too(tmp_path):
    """As systemd sends it to a control group: each worker gets two, its own and the launcher's."""
    with start(SAVING, tmp_path, preexec_fn=heed_sigint) as launcher:
        for pid in [*pids(tmp_path), launcher.pid]:
            os.kill(pid, signal.SIGTERM)
        _, errors = launcher.communicate(timeout=PATIENCE)
    assert (launcher.returncode, errors) == (128 + signal.SIGTERM, b"")
    assert len(list(tmp_path.glob("saved-*"))) == 2


@pytest.mark.integration
def test_a_second_signal_kills_those_that_do_not_heed_the_first(tmp_path):
    with start(STUBBORN + "time.sleep(100)", tmp_path, preexec_fn=heed_sigint) as launcher:
        launcher.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert launcher.poll() is None
        launcher.send_signal(signal.SIGTERM)
        _, errors = launcher.communicate(timeout=PATIENCE)
    assert (launcher.returncode, errors) == (128 + signal.SIGINT, b"")
    assert len(pids(tmp_path)) == 4
    wait_for(lambda: not any(map(lives, pids(tmp_path))))


def test_under_nohup_the_end_of_the_terminal_is_none_of_ours(tmp_path):
    ends = "note(f'worker-{index}')\nwhile not (folder / 'end').exists(): time.sleep(0.02)"
    with start(ends, tmp_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as launcher:
        launcher.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert launcher.poll() is None
        (tmp_path / "end").touch()
        assert launcher.wait(PATIENCE) == 0


def test_workers_go_on_where_nobody_reads_what_they_say(tmp_path):
    talk = """
note(f"worker-{index}")
while not (folder / "gone").exists():
    time.sleep(0.02)
if index == 1:
    for _ in range(10_000):
        print("x" * 100)
"""
    with start(talk, tmp_path) as launcher:
        launcher.stderr.close()
        (tmp_path / "gone").touch()
        assert launcher.wait(PATIENCE) == 0


# --- the command --------------------------------------------------------------------------------------------


def a2c(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "a2c", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)


def test_the_command_runs_in_every_worker_with_all_its_options(tmp_path):
    result = a2c("launch", "--workers", "2", "--", "resume", "nothing", "--steps", "5", folder=tmp_path)
    assert result.returncode == 2
    sentence = "a2c: There is no run folder or checkpoint nothing"
    first, second = sorted(result.stderr.splitlines())
    assert first.startswith(sentence)
    assert second == f"worker 1: {first}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "runs train or resume, and was given neither; for example: a2c launch --workers 2 -- train"),
        (["--"], "and was given neither"),
        (["--", "eval", "runs/x"], "not 'eval'"),
        (["eval", "--episodes", "5"], "not 'eval'"),  # also without the dashes its options are its own
        (["--", "launch", "--", "train"], "not 'launch'"),
        (["--", "--env", "Pong"], "not '--env'"),
        (["--workers", "0", "--", "train"], "--workers"),
        (["--workers", "1025", "--", "train"], "--workers"),
        (["--wrokers", "2", "--", "train"], "--wrokers"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, run_cli, arguments, said):
    assert_one_sentence(run_cli("launch", *arguments, cwd=tmp_path), 2, said)


def test_a_signal_after_one_that_was_passed_on_is_not_a_second_one():
    """Both may be of one request, in any order."""
    with noted(signal.SIGTERM) as came:
        seen = []
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
            os.kill(os.getpid(), number)
            seen.append(list(came))
    assert seen == [[signal.SIGUSR1], [signal.SIGTERM], [signal.SIGTERM], [signal.SIGTERM, signal.SIGTERM]]
