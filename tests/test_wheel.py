"""The wheel holds all that the package reads: presets, tables, styles."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
LOOK = """
import a2c, os
from a2c.config import load_config, preset_names
from a2c.games import games
assert a2c.__file__.startswith(os.getcwd()), a2c.__file__
for name in preset_names():
    load_config(config=name)
print(len(games()), *preset_names())
"""


@pytest.mark.slow
def test_the_wheel_has_the_presets_and_all_files_of_the_package(tmp_path):
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, REPOSITORY]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
        packed = {name for name in archive.namelist() if ".dist-info" not in name}
    tracked = subprocess.run(["git", "ls-files", "a2c", "configs"], cwd=REPOSITORY, capture_output=True, text=True)
    assert packed == {name if name.startswith("a2c") else f"a2c/{name}" for name in tracked.stdout.split()}
    looked = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    presets = sorted(file.stem for file in (REPOSITORY / "configs").glob("*.yaml"))
    assert looked.stdout.split()[1:] == presets, looked.stderr
    assert int(looked.stdout.split()[0]) > 100
