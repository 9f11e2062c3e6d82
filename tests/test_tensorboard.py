"""A real TensorBoard on real run folders, read back through its web interface."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import read_lines, small_config
from tensorboard.util.tensor_util import make_ndarray

from a2c.algorithms.sections import A2CSection
from a2c.config import UserError, all_keys, lookup
from a2c.run.checkpoint import read_checkpoint
from a2c.run.metrics import tensorboard_tags
from a2c.run.step_files import step_files
from a2c.run.summaries import histogram_summary
from a2c.run.training import train

PATIENCE = 120  # seconds until TensorBoard has come up and read the files
JUDGED = {"every_env_steps": 320, "episodes": 4}


def config(seed: int):
    sections = {"evaluation": JUDGED, "logging": {"histograms": True, "every_updates": 5}, "total_env_steps": 640}
    return small_config(env={"id": "Catch"}, seed=seed, **sections)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two runs, the second of them in two sessions."""
    folder = tmp_path_factory.mktemp("runs")
    train(config(0), folder / "zero")
    half = config(1).model_copy(update={"total_env_steps": 320})
    train(half, folder / "one")
    train(config(1), folder / "one", resume=True)
    return folder


class TensorBoard:
    """The web interface of a TensorBoard."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **query: str) -> Any:
        """The JSON answer of one of its pages."""
        return self._open(f"{self.address}/data/plugin/{path}?{urlencode(query)}")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON answer to a JSON question."""
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        return self._open(urllib.request.Request(f"{self.address}/data/plugin/{path}", data, headers))

    def _open(self, request: Any) -> Any:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def tensorboard(folder, tmp_path_factory) -> Iterator[TensorBoard]:
    log = tmp_path_factory.mktemp("log") / "tensorboard.log"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0", "--host", "127.0.0.1"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        board = TensorBoard(wait_for(lambda: address_in(log), process, log))
        wait_for(lambda: len(board.get("scalars/tags")) == 2, process, log)
        wait_for(lambda: len(board.get("histograms/tags")) == 2, process, log)
        yield board
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def address_in(log: Path) -> str | None:
    found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
    return found and found.group()


def wait_for(come, process, log):
    """What `come()` gives as soon as it gives something."""
    deadline = time.monotonic() + PATIENCE
    while not (value := come()):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    return value


@pytest.mark.integration
def test_scalars_are_in_their_groups(tensorboard, folder):
    tags = tensorboard.get("scalars/tags")
    wanted = set(tensorboard_tags(A2CSection()).values())
    wanted |= {f"evaluation/{name}" for name in ("mean", "median", "standard_error")}
    assert {run: set(tags[run]) for run in tags} == {"zero": wanted, "one": wanted}
    for run in tags:
        shown = tensorboard.get("scalars/scalars", run=run, tag="losses/entropy")
        lines = read_lines(folder / run / "metrics.jsonl")
        assert [step for _, step, _ in shown] == [line["env_steps"] for line in lines] == [160, 320, 480, 640]
        assert [value for *_, value in shown] == pytest.approx([line["entropy"] for line in lines])


@pytest.mark.integration
def test_the_table_of_runs_shows_configuration_and_score(tensorboard, folder):
    experiment = tensorboard.post("hparams/experiment", {"experimentName": "", "includeMetrics": True})
    assert {info["name"] for info in experiment["hparamInfos"]} == set(all_keys())
    tags = [info["name"]["tag"] for info in experiment["metricInfos"]]
    assert tags == ["rollout/episode_return_mean", "evaluation/mean"]
    question = {
        "experimentName": "",
        "includeMetrics": True,
        "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [{"metric": {"tag": tag}} for tag in tags],
        "startIndex": 0,
        "sliceSize": 10,
    }
    rows = tensorboard.post("hparams/session_groups", question)["sessionGroups"]
    assert len(rows) == 2
    for row in rows:
        assert len(row["sessions"]) == 1
        run = folder / row["sessions"][0]["name"]
        mine = config(int(row["hparams"]["seed"]))
        assert run.name == ("zero", "one")[mine.seed]
        for key in ("env.id", "optimizer.learning_rate", "algorithm.normalize_advantages"):
            assert row["hparams"][key] == lookup(mine, key)
        assert row["hparams"]["model.conv_layers"] == str(list(map(list, mine.model.conv_layers)))
        score = json.loads((run / "evaluations.jsonl").read_text().splitlines()[-1])["mean"]
        values = {metric["name"]["tag"]: metric["value"] for metric in row["metricValues"]}
        assert values["evaluation/mean"] == pytest.approx(score)


@pytest.mark.integration
def test_the_configuration_is_there_once_as_text(tensorboard):
    assert tensorboard.get("text/tags") == {"zero": ["config"], "one": ["config"]}
    for run in ("zero", "one"):
        (text,) = tensorboard.get("text/text", run=run, tag="config")
        assert "env.id: Catch" in text["text"]


@pytest.mark.integration
def test_histograms_count_every_weight_at_every_line_of_metrics(tensorboard, folder):
    arrays = read_checkpoint(step_files(folder / "one" / "checkpoints")[-1]).group("model")
    tags = tensorboard.get("histograms/tags")["one"]
    assert len(tags) == len(arrays)
    for tag in tags:
        shown = tensorboard.get("histograms/histograms", run="one", tag=tag)
        assert [step for _, step, _ in shown] == [160, 320, 480, 640]
        buckets = np.array(shown[-1][2])  # left, right, count
        (array,) = [a for a in arrays.values() if buckets[0, 0] == a.min() and buckets[-1, 1] == a.max()]
        assert buckets[:, 2].sum() == array.size


def test_values_that_are_not_finite_or_all_the_same_have_histograms_too():
    mixed = np.array([np.nan, 1.0, np.inf, 2.0], np.float32)
    nothing = np.array([np.nan])
    summary = histogram_summary({"mixed": mixed, "same": np.full((2, 3), 5.0), "nothing": nothing})
    shown = {value.tag: make_ndarray(value.tensor) for value in summary.value}
    assert shown.keys() == {"mixed", "same"}
    assert (shown["mixed"][0, 0], shown["mixed"][-1, 1], shown["mixed"][:, 2].sum()) == (1, 2, 2)
    assert set(shown["same"][:, :2].flat) == {5}
    assert shown["same"][:, 2].sum() == 6


def test_histograms_change_no_bit_of_a_run(tmp_path):
    runs = tmp_path / "with", tmp_path / "without"
    for run, histograms in zip(runs, (True, False), strict=True):
        logging = {"histograms": histograms, "every_updates": 2}
        train(small_config(env={"id": "Catch"}, total_env_steps=128, logging=logging), run)
    first, second = (read_checkpoint(step_files(run / "checkpoints")[-1]) for run in runs)
    assert all(first.arrays[key].tobytes() == second.arrays[key].tobytes() for key in first.arrays if key != "meta")


def test_histograms_without_tensorboard_are_a_mistake():
    with pytest.raises(UserError, match=r"logging\.histograms=true needs tensorboard in logging\.trackers"):
        small_config(logging={"histograms": True, "trackers": []})
