"""What breaks the promise of an algorithm of one's own is found: state outside of its variables, eager unlike graph."""

import json
from pathlib import Path

import pytest
import tensorflow as tf
from conftest import small_config

from a2c.algorithms.a2c import A2C
from a2c.algorithms.section import Promises
from a2c.algorithms.sections import A2CSection
from a2c.analysis.promises import check_promises, same_bits
from a2c.config import build_config, dump_config
from a2c.extensions import register

EXAMPLES = Path(__file__).parents[2] / "examples"


class Forgetful(A2C):
    """Counts its updates where no checkpoint sees it, and learns from every third rollout twice."""

    class Section(A2CSection):
        TITLE = "forgetful"

    made = 0

    def batches(self, rollout, updates):
        self.made += 1
        for _ in range(1 + (self.made % 3 == 0)):
            yield from super().batches(rollout, updates)


class Moody(A2C):
    """Another loss if it is not compiled."""

    class Section(A2CSection):
        TITLE = "moody"

    def _loss(self, *arguments):
        fit = super()._loss(*arguments)
        return fit._replace(loss=fit.loss * (1.0 if tf.inside_function() else 1.5))


class Modest(Moody):
    """Says so."""

    class Section(Moody.Section):
        PROMISES = Promises(modes=False)


class Patient(A2C):
    """Never learns."""

    class Section(A2CSection):
        TITLE = "patient"

    def batches(self, rollout, updates):
        yield from ()


class Broken(A2C):
    """Fails in its first update."""

    class Section(A2CSection):
        TITLE = "broken"

    def _loss(self, *arguments):
        raise KeyError("advantage")


def found_of(algorithm, **changes):
    """What is found for an algorithm in a few updates of Bandit, by check."""
    small = {"env": {"id": "Bandit"}, "model": {"name": "mlp", "hidden_sizes": [4]}}
    values = dump_config(small_config(**small, runtime={"mode": "graph", **changes}))
    values["algorithm"]["name"] = register(algorithm)
    return {finding.check: finding for finding in check_promises(build_config(values, where="test"), 8)}


@pytest.mark.usefixtures("exact_numerics")
def test_state_that_no_checkpoint_holds_is_found_by_a_resume():
    found = found_of(Forgetful)
    assert (found["resume"].status, found["exactness"].status) == ("problem", "ok")
    assert "a run that was stopped and resumed gives other bits in " in found["resume"].found
    assert "must hold all that changes" in found["resume"].advice


@pytest.mark.usefixtures("exact_numerics")
def test_a_loss_that_is_another_in_a_graph_is_found_by_eager_execution():
    found = found_of(Moody)
    assert (found["resume"].status, found["exactness"].status) == ("ok", "problem")
    assert "a2c compare --eager" in found["exactness"].advice


@pytest.mark.usefixtures("exact_numerics")
def test_eager_execution_is_compared_with_graphs_if_eager_is_asked_for():
    assert found_of(Moody, mode="eager")["exactness"].status == "problem"


@pytest.mark.parametrize(("algorithm", "numerics"), [(Moody, "fast"), (Modest, "auto")])
def test_where_eager_execution_may_differ_it_is_not_compared(algorithm, numerics):
    found = found_of(algorithm, numerics=numerics)
    assert (found["resume"].status, found["exactness"].status) == ("ok", "ok")
    assert found["exactness"].found.startswith("not promised")


NOISY = """
import time
import gymnasium
import numpy as np


class Noisy(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, **options):
        return np.random.default_rng(time.time_ns()).uniform(-1, 1, 4).astype(np.float32), {}

    def step(self, action):
        return self.reset()[0], 1.0, False, False, {}


gymnasium.register(id="Noisy-v0", entry_point=Noisy)
"""


def test_an_environment_that_is_no_function_of_its_seed_is_found(tmp_path, run_cli):
    (tmp_path / "noisy.py").write_text(NOISY)
    ended = run_cli("doctor", "--env", "noisy:Noisy-v0", "--updates", 2, cwd=tmp_path)
    assert ended.returncode == 1
    assert "is not a function of its seed and actions" in ended.stderr
    assert "problem: 2" in ended.stdout


def test_what_makes_no_gradient_step_proves_nothing():
    (finding,) = found_of(Patient).values()
    assert (finding.check, finding.status) == ("training", "problem")


def test_what_fails_is_told_with_the_line_of_its_own_code():
    (finding,) = found_of(Broken).values()
    assert (finding.check, finding.status) == ("training", "problem")
    assert finding.found.startswith("KeyError: 'advantage' (test_promises.py, line ")


def test_what_promises_nothing_is_not_trained():
    (finding,) = check_promises(small_config(algorithm={"name": "a3c"}, total_env_steps=640))
    assert (finding.check, finding.status) == ("promises", "note")


def test_arrays_are_the_same_only_in_all_bits():
    first = {"model/a": ("float32", b"12"), "model/b": ("float32", b"34")}
    assert same_bits("resume", first, dict(first), "a copy", "mend it").status == "ok"
    assert same_bits("resume", {}, first, "a copy", "mend it").status == "problem"
    for other in ({**first, "model/a": ("float32", b"13")}, {"model/b": first["model/b"]}):
        finding = same_bits("exactness", first, other, "eager execution", "mend it")
        assert finding == (
            "exactness",
            "problem",
            "eager execution gives other bits in 1 of 2 arrays, first in model/a",
            "mend it",
        )


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "preset"), [("reinforce:Reinforce", "catch-rmsprop"), ("munchausen:Munchausen", None)]
)
def test_the_examples_keep_the_promises(name, preset, run_cli):
    """One with a replay too, whose files are others after a stop."""
    named = ["--config", preset, "--set", "runtime.threads=0"] if preset else []  # TensorFlow may run here already
    ended = run_cli("doctor", "--algorithm", name, *named, "--json", cwd=EXAMPLES)
    assert (ended.returncode, ended.stderr) == (0, "")
    statuses = {finding["check"]: finding["status"] for finding in json.loads(ended.stdout)["findings"]}
    assert statuses == {"resume": "ok", "exactness": "ok", "speed": "ok"}
