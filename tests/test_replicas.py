"""N replicas that share a batch make the update of one learner with all of it, to float32 rounding."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from workers import PATIENCE, python, tf_config

from a2c.algorithms.returns import Moments
from a2c.config import UserError, load_config
from a2c.execution.replicas import ALONE, Replicas, open_replicas

UPDATES = 10  # of joint.py
# Of weights of up to 1 and losses of up to 4, after all updates: a unit or two in the last place. bfloat16 has 8 bits.
ROUNDING = {"float32": (1e-7, 5e-6), "mixed_bfloat16": (1e-3, 3e-2)}


CASES = {  # of so many replicas; each pair of settings is in one of them
    "2": (2, "mlp adam normalized float32"),
    "2-others": (
        2,
        "mlp rmsprop plain float32",
        "convolutions adam plain float32",
        "convolutions rmsprop normalized float32",
        "convolutions adam normalized mixed_bfloat16",
    ),
    "4": (4, "convolutions adam normalized float32"),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.integration) for name in CASES],
)
def found(request, tmp_path_factory):
    """What joint.py found for so many replicas on virtual devices."""
    number, *cases = CASES[request.param]
    results = tmp_path_factory.mktemp("joint") / "results.json"
    script = Path(__file__).with_name("joint.py")
    subprocess.run(
        python(str(script), str(results), str(number), *cases), check=True, timeout=PATIENCE, capture_output=True
    )
    differences = json.loads(results.read_text())
    assert [case["name"] for case in differences] == cases
    return differences


def test_replicas_make_the_update_of_the_joint_batch(found):
    """Mean before clipping (every update is clipped), joint moments for normalizing, applied once."""
    for case in found:
        weights, losses = ROUNDING[case["name"].split()[-1]]
        assert case["weights"] <= weights, case
        assert case["losses"] <= losses, case
        assert case["moved"] > 100 * ROUNDING["float32"][0], case
        assert case["iterations"] == UPDATES, case


def test_replicas_stay_equal_and_draw_what_one_learner_draws(found):
    assert [case["name"] for case in found if not (case["copies"] and case["actions"])] == []


def test_eager_and_graph_give_the_same_bits_on_replicas_too(found):
    assert [case["name"] for case in found if not case["eager"]] == []


def test_one_replica_alone_does_nothing():
    x = tf.constant([[1.0, 2.0]])
    assert ALONE.mean([x])[0] is x
    assert ALONE.slice(x, axis=1) is x
    assert ALONE.rows(x, 1) is x
    assert ALONE.run(lambda a, b: a + b, 1, 2) == 3
    assert ALONE.consult(True, False) == [True, False]
    assert ALONE.gather({"a": np.arange(3)})[0]["a"].tolist() == [0, 1, 2]
    assert ALONE.is_chief
    each = ALONE.marked(tf.stack(Moments(tf.constant(2.0), tf.constant(3.0))))
    np.testing.assert_array_equal(each, [[2.0, 3.0]])


def test_workers_may_send_arrays_of_any_name():
    """Those of a checkpoint, which may be a stranger's."""
    sent = {name: np.arange(3) for name in ("file", "allow_pickle", "arr_0", "x", "x.npy")}
    received = Replicas(workers=2).from_chief(lambda: sent)
    assert {name: array.tolist() for name, array in received.items()} == {name: [0, 1, 2] for name in sent}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"runtime.strategy": "mirrored", "runtime.mode": "xla"},
            "runtime.strategy=mirrored does not go with mode=xla",
        ),
        ({"runtime.replicas": 2}, "runtime.replicas=2 needs strategy=mirrored"),
        ({"runtime.workers": 2}, "runtime.workers=2 needs strategy=multiworker, not none"),
        (
            {"runtime.strategy": "mirrored", "runtime.replicas": 3, "env.num_envs": 16},
            "env.num_envs=16 cannot be shared evenly by runtime.replicas=3",
        ),
        ({"runtime.strategy": "tpu"}, "it should be none, mirrored or multiworker"),
    ],
)
def test_what_does_not_fit_is_refused(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        load_config(config="catch", overrides=settings)


def test_mirrored_needs_a_process_in_which_tensorflow_has_not_begun():
    tf.zeros(1)
    config, _ = load_config(config="catch", overrides={"runtime.strategy": "mirrored", "runtime.replicas": 2})
    with pytest.raises(UserError, match=r"runtime\.replicas=2 comes too late"):
        open_replicas(config)


@pytest.mark.parametrize("strategy", ["none", "mirrored"])
def test_a_cluster_that_is_not_asked_for_is_not_passed_over(monkeypatch, strategy):
    """Each of its workers would train a run of its own, or fight for the folder."""
    config, _ = load_config(config="catch", overrides={"runtime.strategy": strategy})
    monkeypatch.setenv("TF_CONFIG", tf_config(["a:1", "b:2"], 1))
    with pytest.raises(UserError, match=f"TF_CONFIG names 2 workers, but runtime.strategy={strategy}"):
        open_replicas(config)
    for fine in (tf_config(["a:1"], 0), "{"):
        monkeypatch.setenv("TF_CONFIG", fine)
        assert open_replicas(config)[1].total == 1


def test_mirrored_on_one_device_is_as_without(tmp_path):
    config, _ = load_config(config="catch", overrides={"runtime.strategy": "mirrored"})
    settled, replicas = open_replicas(config)
    assert (settled.runtime.replicas, replicas.total, replicas.strategy) == (1, 1, None)


@pytest.mark.integration
def test_a_mirrored_run_is_trained_resumed_and_evaluated(tmp_path, run_cli):
    """By the command line, on two virtual devices; its weights are those of an undisturbed run."""

    def a2c(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "a2c", *words], capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path
        )

    train = ["train", "--env", "Catch", "--strategy", "mirrored", "--set", "runtime.replicas=2", "-q"]
    train += ["--set", "logging.trackers=[]"]
    for name, steps in (("whole", 5_000), ("cut", 2_000)):
        done = a2c(*train, "--steps", str(steps), "--run-dir", name)
        assert (done.returncode, done.stderr) == (0, "")
    done = a2c("resume", "cut", "--steps", "5000", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    whole, cut = (sorted((tmp_path / name / "checkpoints").glob("step-*.npz"))[-1] for name in ("whole", "cut"))
    assert whole.name == cut.name
    with np.load(whole) as a, np.load(cut) as b:
        assert [key for key in a if key != "meta" and a[key].tobytes() != b[key].tobytes()] == []
    other = ["train", "--env", "Catch", "--set", "logging.trackers=[]", "--run-dir", "cut", "--auto-resume"]
    other = run_cli(*other, cwd=tmp_path)
    assert other.returncode == 2
    assert "was started with runtime.replicas=2, not 0" in other.stderr
    scores = run_cli("eval", "whole", "--episodes", "5", cwd=tmp_path)
    assert scores.returncode == 0, scores.stderr
