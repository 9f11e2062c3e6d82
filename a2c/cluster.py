"""stand-in"""

from __future__ import annotations
import json, os
from typing import Any


class Cluster:
    def __init__(self, a, i):
        self.addresses = a
        self.index = i
        self.source = "TF_CONFIG"
        self.size = len(a)

    def meet(self, seconds: float) -> None:
        pass

    def resolver(self) -> Any:
        import tensorflow as tf

        return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def find_cluster() -> Cluster:
    c = json.loads(os.environ["TF_CONFIG"])
    return Cluster(c["cluster"]["worker"], c["task"]["index"])
