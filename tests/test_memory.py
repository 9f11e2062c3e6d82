"""What does not fit in memory is refused before it is taken."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import small_config
from gymnasium.spaces import Box

from a2c.config import ModelConfig, UserError, load_config
from a2c.execution import memory
from a2c.execution.memory import check_network_memory, check_rollout_memory, physical_memory
from a2c.networks.model import build_model, weight_shapes

IMAGES = Box(0, 255, (84, 84, 4), np.uint8)
VECTORS = Box(-1, 1, (4,), np.float32)


def test_the_machine_has_memory_and_its_container_may_have_less(monkeypatch):
    assert 2**28 < physical_memory() < 2**48
    monkeypatch.setattr(memory, "memory_limit", lambda: 5e8)
    assert physical_memory() == 500_000_000


def test_a_rollout_of_more_observations_than_memory_names_keys_and_sizes(monkeypatch):
    monkeypatch.setattr(memory, "physical_memory", lambda: 25 * 10**9)
    huge = ["env.num_envs=4096", "algorithm.rollout_length=4096", "total_env_steps=20_000_000"]
    config, _ = load_config(config="atari", assignments=huge)
    with pytest.raises(UserError) as error:
        check_rollout_memory(config, IMAGES)
    assert str(error.value) == (
        "algorithm.rollout_length=4096 x env.num_envs=4096 observations of 84 x 84 x 4 uint8 take 473.5 GB, and this "
        "machine has 25.0 GB; lower one of the two."
    )


@pytest.mark.parametrize(("space", "size"), [(IMAGES, 32 * 84 * 84 * 4), (VECTORS, 32 * 4 * 4)])
def test_a_rollout_that_just_fits_is_allowed(monkeypatch, space, size):
    config = small_config()  # 8 x 4
    monkeypatch.setattr(memory, "physical_memory", lambda: size)
    check_rollout_memory(config, space)
    monkeypatch.setattr(memory, "physical_memory", lambda: size - 1)
    with pytest.raises(UserError):
        check_rollout_memory(config, space)


def test_a_network_is_counted_with_gradients_and_optimizer(monkeypatch):
    shapes = [(10, 5), (5,)]
    monkeypatch.setattr(memory, "physical_memory", lambda: 55 * 16)
    check_network_memory(shapes)
    monkeypatch.setattr(memory, "physical_memory", lambda: 55 * 16 - 1)
    with pytest.raises(UserError, match=r"The network has 55 weights, 10 x 5 in its largest layer.*model.hidden_sizes"):
        check_network_memory(shapes)


def test_presets_fit():
    for preset in ("atari", "a2c", "ppo"):
        config, _ = load_config(config=preset, env_id="Pong")
        check_rollout_memory(config, IMAGES)
        check_network_memory(weight_shapes(config.model, IMAGES, 18))


@pytest.mark.parametrize(
    ("space", "config"),
    [
        (IMAGES, {"name": "nature"}),
        (IMAGES, {"name": "small", "conv_layers": ((4, 4, 4), (8, 4, 2)), "pixels": "standardized"}),
        (IMAGES, {"name": "impala"}),
        (VECTORS, {}),
        (VECTORS, {"hidden_sizes": ()}),
    ],
)
def test_shapes_are_those_of_the_network_and_another_network_is_not_touched(space, config):
    """What Keras notes down about variables without values must not reach the next model."""
    model_config = ModelConfig(**config)
    before = weight_shapes(model_config, space, 6)
    model = build_model(model_config, space, 6, seed=3)
    assert before == [tuple(variable.shape) for variable in model.variables] == weight_shapes(model_config, space, 6)
    weights = build_model(model_config, space, 6, seed=3).get_weights()
    assert all((a == b).all() for a, b in zip(model.get_weights(), weights, strict=True))


def test_shapes_of_a_network_that_does_not_fit_are_refused():
    with pytest.raises(UserError, match=r"raise env[.]screen_size"):
        weight_shapes(ModelConfig(name="small", conv_layers=((8, 85, 1),)), IMAGES, 6)


@pytest.mark.integration
def test_no_memory_is_taken_for_a_network_of_17_gb_now_or_later():
    code = """
import resource
import numpy as np
from gymnasium.spaces import Box
from a2c.config import ModelConfig
from a2c.networks.model import build_model, weight_shapes

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

vectors, images = Box(-1, 1, (4,), np.float32), Box(0, 255, (84, 84, 4), np.uint8)
build_model(ModelConfig(), images, 2, seed=0)
before = peak()
shapes = weight_shapes(ModelConfig(hidden_sizes=(65536, 65536)), vectors, 2)
assert (65536, 65536) in shapes
build_model(ModelConfig(), images, 2, seed=0)  # Keras computes the shapes of Bias in a scope, and would catch up then
assert peak() - before < 2**28, peak() - before
"""
    # the limit: a mistake here is an error, and does not take the machine down
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, 12 * 2**30)){code}"
    result = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
