"""`python joint.py RESULTS N CASE ...`: the same updates on one learner and on N replicas, on virtual devices.

One process of its own, since virtual devices can only be made before TensorFlow starts. RESULTS is JSON: for each
case, such as "mlp adam normalized float32", what the replicas differ by from one learner with the joint batch.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from conftest import VECTORS, make_trajectory
from gymnasium.spaces import Box

from a2c.algorithms.algorithm import Algorithm, build_algorithm
from a2c.algorithms.policy import SPELL
from a2c.config import Config, RuntimeConfig, build_config
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import setup

B, T, A, UPDATES, HOLD = 8, 5, 3, 10, 4
PIXELS = Box(0, 255, (20, 20, 2), np.uint8)
NETWORKS: dict[str, tuple[Box, dict[str, Any]]] = {
    "mlp": (VECTORS, {"name": "mlp", "hidden_sizes": [16]}),
    "convolutions": (PIXELS, {"name": "nature", "conv_layers": [[8, 4, 2], [8, 3, 1]], "pixels": "standardized"}),
}


def settings(network: str, optimizer: str, normalized: bool, mode: str, precision: str) -> Config:
    return build_config(
        {
            "env": {"num_envs": B},
            "model": NETWORKS[network][1],
            "algorithm": {
                "rollout_length": T,
                "gae_lambda": 0.9,
                "normalize_advantages": normalized,
                "noise_hold": HOLD,
            },
            "optimizer": {"name": optimizer, "max_grad_norm": 0.05, "schedule": "linear"},  # every update is clipped
            "runtime": {"mode": mode, "precision": precision},
            "total_env_steps": 2 * UPDATES * T * B,
        },
        where="joint",
    )


def train(config: Config, space: Box, replicas: Replicas) -> tuple[Algorithm, list[list[float]], np.ndarray]:
    """An algorithm after all updates, with the losses of each, and the actions it draws in the end."""
    learner = build_algorithm(config, space, A, replicas=replicas)
    trajectories = [make_trajectory(seed, space, A, T, B) for seed in range(UPDATES)]
    losses = [[float(x) for x in learner.learn(trajectory).values()] for trajectory in trajectories]
    seeds = [np.array([3, t], np.int64) for t in range(0, 10 * SPELL * HOLD, SPELL * HOLD)]  # each in another spell
    x = trajectories[0].bootstrap_observations[0]
    return learner, losses, np.stack([learner.policy.explore(x, seed)[0] for seed in seeds])


def weights(learner: Algorithm) -> np.ndarray:
    return np.concatenate([np.ravel(array) for array in learner.policy.model.trainable_variables])


def have_equal_copies(learner: Algorithm) -> bool:
    """Whether all replicas hold the same bits."""
    variables = [*learner.variables["model"], *learner.variables["optimizer"]]
    copies = [[copy.numpy() for copy in variable.value.values] for variable in variables]
    return all(copy.tobytes() == first.tobytes() for first, *others in copies for copy in others)


def main(results: str, number: str, *cases: str) -> None:
    n = int(number)
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * n)
    setup(RuntimeConfig())
    replicas = Replicas(tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n)]), local=n)
    found = []
    for case in cases:
        network, optimizer, advantages, precision = case.split()
        space, normalized = NETWORKS[network][0], advantages == "normalized"
        config = settings(network, optimizer, normalized, "graph", precision)
        joint, joint_losses, joint_actions = train(config, space, ALONE)
        learner, losses, actions = train(config, space, replicas)
        eager, eager_losses, _ = train(settings(network, optimizer, normalized, "eager", precision), space, replicas)
        moved = weights(joint) - weights(build_algorithm(config, space, A))
        found.append(
            {
                "name": case,
                "weights": float(np.abs(weights(learner) - weights(joint)).max()),
                "moved": float(np.abs(moved).max()),
                "losses": float(np.abs(np.subtract(losses, joint_losses)).max()),
                "actions": bool((actions == joint_actions).all()),
                "copies": have_equal_copies(learner),
                "iterations": int(learner.learn.optimizer.iterations.numpy()),
                "eager": weights(eager).tobytes() == weights(learner).tobytes() and eager_losses == losses,
            }
        )
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
