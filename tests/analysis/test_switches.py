"""Part two of `compare --eager`: the search, and a pass that was planted."""

import itertools
import json
import os
import subprocess
import sys

import pytest

from a2c.analysis import numerics
from a2c.analysis import switches as sw
from a2c.config import build_config

FIVE = ("a", "b", "c", "d", "e")


class Machine:
    """Agrees where one of the given sets is off, and counts how often it was asked."""

    def __init__(self, *cures: str) -> None:
        self.cures = [frozenset(cure) for cure in cures]
        self.asked: list[frozenset[str]] = []

    def __call__(self, sets):
        self.asked += sets
        return [any(cure <= off for cure in self.cures) for off in sets]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5])
def test_the_one_set_that_suffices_is_found_whatever_its_members(size):
    for cure in itertools.combinations(FIVE, size):
        assert sw.smallest_set(Machine("".join(cure)), FIVE) == frozenset(cure)


@pytest.mark.parametrize(
    ("cures", "smallest"),
    [(("abc", "de"), "de"), (("abc", "abd"), "abc"), (("ab", "c"), "c"), (("abcd", "abe", "ace"), "abe")],
)
def test_of_several_sets_the_smallest_is_found(cures, smallest):
    assert sw.smallest_set(Machine(*cures), FIVE) == frozenset(smallest)


def test_where_nothing_suffices_that_is_said():
    assert sw.smallest_set(Machine(), FIVE) is None


def test_the_search_is_short_where_two_of_many_are_to_blame():
    machine = Machine(frozenset(sw.SWITCHES[:2]))
    assert sw.smallest_set(machine) == frozenset(sw.SWITCHES[:2])
    assert len(machine.asked) <= 2 * len(sw.SWITCHES) + 3


def test_labels_say_what_is_done():
    assert [sw.label(switch) for switch in ("remapping", sw.ONEDNN, sw.THREADS, sw.NONDETERMINISM)] == [
        "remapping off",
        "oneDNN off",
        "one thread",
        "op determinism on",
    ]


STATE = """
import json, sys
import tensorflow as tf
from a2c.analysis.switches import switch_off
from tensorflow.python.framework import config
for off in ([], sys.argv[1:]):
    switch_off(off)
    print(json.dumps({
        "off": sorted(name for name, on in tf.config.optimizer.get_experimental_options().items() if on is False),
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "deterministic": config.is_op_determinism_enabled(),
    }))
"""


@pytest.mark.integration
def test_switches_reach_tensorflow():
    """None, then some, in one fresh process."""
    some = ("remapping", "layout_optimizer", sw.ONEDNN, sw.THREADS, sw.NONDETERMINISM)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **sw.environment(some)}
    command = [sys.executable, "-c", STATE, *some]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    for off, line in zip(((), some), said.splitlines(), strict=True):
        state = json.loads(line)
        passes = sorted(set(off) & set(sw.GRAPPLER_PASSES))
        assert [name for name in state["off"] if name in sw.GRAPPLER_PASSES] == passes
        assert state["threads"] == (1 if sw.THREADS in off else 0)
        assert state["deterministic"] is (sw.NONDETERMINISM in off)
        assert sw.environment(off) == {"TF_ENABLE_ONEDNN_OPTS": "0" if sw.ONEDNN in off else "1"}


PLANTED = """
import sys
import a2c.algorithms.a2c
class Planted(a2c.algorithms.a2c.A2C):
    def _forward(self, trajectory, tap):
        logits, values, bootstrap_value = super()._forward(trajectory, tap)
        return logits / 3.0, values, bootstrap_value  # folded into a product with 1 / 3, which rounds otherwise
a2c.algorithms.a2c.A2C = Planted
from a2c.analysis import worker
worker.main(*sys.argv[1:])
"""


@pytest.mark.integration
def test_a_pass_that_was_planted_is_named(tmp_path):
    """Real updates in fresh processes: the network alone agrees, the planted division does not."""
    values = {
        "env": {"id": "CartPole-v1", "num_envs": 2},
        "model": {"hidden_sizes": []},
        "algorithm": {"rollout_length": 8},
        "optimizer": {"name": "adam", "learning_rate": 0.05},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(values))
    rollouts = numerics.record(build_config(values, where="test"), 3)
    numerics.save_rollouts(tmp_path / "rollouts.npz", rollouts)
    (tmp_path / "planted.py").write_text(PLANTED)

    def trial(sets, program=("planted.py",)):
        running = []
        for number, off in enumerate(sets):
            output = tmp_path / f"{len(off)}-{number}.json"
            files = [str(tmp_path / "config.yaml"), str(tmp_path / "rollouts.npz"), str(output)]
            command = [sys.executable, *program, "agree", *files, "3", *off]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **sw.environment(off)}
            running.append((subprocess.Popen(command, cwd=tmp_path, env=environment), output))
        assert [process.wait() for process, _ in running] == [0] * len(running)
        return [numerics.Agreement(**json.loads(output.read_text())).complete for _, output in running]

    assert trial([frozenset()], program=("-m", "a2c.analysis.worker"))[0]
    suspects = ("arithmetic_optimization", "constant_folding")
    assert sw.smallest_set(trial, suspects) == {"constant_folding"}
