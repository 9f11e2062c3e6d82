"""`python mirrored.py RESULTS NAME ...`: two updates of each algorithm, on one learner and on two replicas.

One process of its own, since virtual devices can only be made before TensorFlow starts. RESULTS is JSON: for each
algorithm the largest difference of a weight and of a metric, and how far the largest weight moved.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from test_conformance import config

from a2c.algorithms.algorithm import build_algorithm
from a2c.config import RuntimeConfig
from a2c.data.collector import build_collector
from a2c.envs import make_env_groups
from a2c.execution.replicas import ALONE, Replicas
from a2c.execution.runtime import setup

UPDATES = 2


def learned(name: str, replicas: Replicas, updates: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights after some updates, and the metrics of the last: a norm of gradients tells a sum from a mean."""
    settings = config(name)
    with make_env_groups(settings.env, seed=0) as envs:
        algorithm = build_algorithm(settings, envs.observation_space, envs.num_actions, replicas=replicas)
        collector = build_collector(settings, envs, algorithm.policy)
        metrics: dict[str, float] = {}
        for number in range(updates):
            update, _ = algorithm.iterate(collector, number)
            metrics = {key: float(value) for key, value in sorted(update.metrics.items())}
        weights = np.concatenate([np.ravel(variable) for variable in algorithm.variables["model"]])
        return weights, np.array(list(metrics.values()))


def main(results: str, *names: str) -> None:
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    setup(RuntimeConfig())
    assert len(tf.config.list_logical_devices("CPU")) == 2
    replicas = Replicas(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), local=2)
    found = {}
    for name in names:
        first, _ = learned(name, ALONE, 0)
        alone, alone_metrics = learned(name, ALONE, UPDATES)
        shared, shared_metrics = learned(name, replicas, UPDATES)
        found[name] = {
            "moved": float(np.abs(alone - first).max()),
            "weights": float(np.abs(shared - alone).max()),
            "metrics": float(np.abs(shared_metrics - alone_metrics).max()),
        }
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
