"""examples/first_hour.ipynb: what it claims is in its outputs, those in the repository and those of a new run."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_hour.ipynb"
LARGEST = 300_000  # bytes: pictures are small
HERE = re.compile(r"/(home|Users|root|work|tmp|var)/")  # of whoever ran it


def code_cells(book: dict) -> list[dict]:
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def printed(book: dict) -> str:
    outputs = [output for cell in code_cells(book) for output in cell["outputs"]]
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def assert_as_claimed(book: dict) -> None:
    """Each cell ran, in order and without an error, and the sentences between them are true."""
    cells = code_cells(book)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    shown = [kind for output in outputs for kind in output.get("data", {}) if kind.startswith("image/")]
    assert (shown.count("image/png"), shown.count("image/gif")) == (4, 1)
    text = printed(book)
    assert not re.findall(r"^(?:a2c: |.*(?:Error|Warning)\b).*", text, re.MULTILINE)  # commands do not raise
    means = {run: [float(m) for m in re.findall(rf"^{run}: mean (\S+), 95 %", text, re.MULTILINE)] for run in RUNS}
    assert means["catch"][0] > 0.8
    assert means["stopped"][0] < 0.8 < means["stopped"][1] == means["catch"][0]
    assert "largest difference to the program's: 0.0\n" in text
    assert "eager = graph after 2 updates: True\n" in text
    assert "stopped by Enough: " in text
    assert "resumed = never stopped: True\n" in text
    words = " ".join(text.split())
    assert re.search(
        r"Catch, ppo: .*ended \+\S+ from its return \(95 % \+\S+ to \+\S+, p \S+; difference shown\)", words
    )
    assert "trained for 3,000,320 steps\n" in text  # the agent that comes with the repository


RUNS = ("catch", "stopped")


def test_the_notebook_in_the_repository_shows_what_it_claims():
    assert NOTEBOOK.stat().st_size < LARGEST
    book = json.loads(NOTEBOOK.read_text())
    assert_as_claimed(book)
    assert not HERE.findall(printed(book))


@pytest.mark.slow
def test_it_runs_from_top_to_bottom_and_leaves_nothing_behind(tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    folders = {name: tmp_path / name for name in ("started_in", "temporary", "profile")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folders["temporary"]))
    monkeypatch.setenv("IPYTHONDIR", str(folders["profile"]))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # of !a2c
    book = nbformat.read(NOTEBOOK, as_version=4)
    before = [cell.source for cell in book.cells]
    where = {"metadata": {"path": str(folders["started_in"])}}
    nbclient.NotebookClient(book, timeout=3_600, kernel_name="python3", resources=where).execute()
    assert_as_claimed(book)
    assert [cell.source for cell in book.cells] == before
    assert not list(folders["started_in"].iterdir())
    left = [path.name for path in folders["temporary"].iterdir()]
    assert all(name.startswith("first-hour-") for name in left)  # its own, if the kernel was killed before it could
