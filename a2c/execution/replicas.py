"""Replicas: copies of the network that learn from one joint batch, on the devices of one or several processes.

tf.distribute holds the copies and adds up their gradients. Each replica has its slice of the environments. N workers
with B environments each are one run of N x B: worker w has rows w B to (w + 1) B of the joint batch.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from a2c.config import Config, CrashError, RuntimeConfig, UserError, changed, dotted, dump_config
from a2c.execution.cluster import find_cluster

FORMING_SECONDS = 60  # for TensorFlow to connect workers after `Cluster.meet`; by itself it waits an hour
WISHES = 3  # number of flags in `consult`


class Replicas:
    """The replicas of this process among all replicas of a run.

    Args:
        strategy: a tf.distribute strategy; None for a single replica, which makes every method nearly free.
        workers: number of processes.
        index: of this process; only 0, the chief, reads and writes the run's folder.
        local: replicas in each process.
    """

    def __init__(self, strategy: Any = None, *, workers: int = 1, index: int = 0, local: int = 1) -> None:
        self.strategy = strategy
        self.workers = workers
        self.index = index
        self.local = local
        self.total = workers * local
        if workers > 1:
            self._wishes = tf.Variable(tf.zeros(WISHES), trainable=False)
            self._heard = tf.Variable(tf.zeros(WISHES), trainable=False)
            self._sum = tf.function(
                self._summed, input_signature=[tf.TensorSpec((None, None), tf.int32)], autograph=False
            )

    @property
    def is_chief(self) -> bool:
        """Whether this process reads and writes the run's folder."""
        return self.index == 0

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """In this context, variables are created on every replica, with the chief's values."""
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    # --- inside a compiled function ---------------------------------------------------------------------------

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on every replica of this process, each time with all arguments."""
        return function(*arguments) if self.strategy is None else self.strategy.run(function, arguments)

    def first(self, values: Any) -> Any:
        """The results of `run` from the first replica of this process."""
        if self.strategy is None:
            return values
        return tf.nest.map_structure(lambda value: self.strategy.experimental_local_results(value)[0], values)

    def joined(self, values: Any) -> Any:
        """The results of `run` from all replicas of this process, concatenated along the first axis."""
        if self.strategy is None:
            return values
        return tf.nest.map_structure(
            lambda value: tf.concat(self.strategy.experimental_local_results(value), axis=0), values
        )

    def slice(self, tensor: tf.Tensor, *, axis: int) -> tf.Tensor:
        """In `run`: this replica's share of a tensor of this process, along an axis."""
        if self.local == 1:
            return tensor
        begin, size = [0] * len(tensor.shape), tensor.shape.as_list()
        size[axis] //= self.local
        begin[axis] = (self._replica() - self.index * self.local) * size[axis]
        return tf.slice(tensor, begin, size)

    def rows(self, tensor: tf.Tensor, rows: int) -> tf.Tensor:
        """In `run`: this replica's rows (`rows` per replica) of a tensor of the joint batch."""
        return tensor if self.total == 1 else tensor[self._replica() * rows :][:rows]

    def mean(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """In `run`: the means of float32 tensors over all replicas, the same bits on each."""
        if self.total == 1:
            return list(tensors)
        riders = [self._wishes.read_value()] if self.workers > 1 else []
        together = [*tensors, *riders]
        # one message for all tensors, since each message costs its latency
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in together], axis=0)
        flat = _context().all_reduce(tf.distribute.ReduceOp.MEAN, flat)
        parts = tf.split(flat, [tensor.shape.num_elements() for tensor in together])
        if riders:
            self._heard.assign(parts.pop())
        return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def marked(self, vector: tf.Tensor) -> tf.Tensor:
        """In `run`: a table [replicas, n]; its `mean` over all replicas holds the vector [n] of each replica."""
        if self.total == 1:
            return vector[None]
        return tf.one_hot(self._replica(), self.total, on_value=float(self.total))[:, None] * vector

    def apply(self, optimizer: keras.optimizers.Optimizer, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """One optimizer step on all replicas, with gradients from `run`.

        With a strategy it avoids Keras' `apply_gradients`, which would add up the gradients of the replicas again.
        """
        if self.strategy is None:
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return

        def step(variable: Any, gradient: tf.Tensor, learning_rate: tf.Tensor) -> None:
            optimizer.update_step(gradient, variable, learning_rate)

        with self.scope():
            learning_rate = tf.convert_to_tensor(optimizer.learning_rate)
            for gradient, variable in zip(gradients, variables, strict=True):
                self.strategy.extended.update(variable.value, step, args=(gradient, learning_rate), group=False)
            optimizer.iterations.assign_add(1)

    def _replica(self) -> tf.Tensor:
        return tf.convert_to_tensor(_context().replica_id_in_sync_group)

    # --- between the workers ----------------------------------------------------------------------------------

    def consult(self, *wishes: bool) -> list[bool]:
        """Share flags with all workers; returns for each flag whether any worker has set it.

        With several workers, the result is of the flags set before the last update: they are sent with its gradients,
        so that nothing waits for them and all workers get the same result.
        """
        if self.workers == 1:
            return list(wishes)
        heard = [bool(wish) for wish in self._heard.numpy() > 0]
        self._wishes.assign(np.array(wishes, np.float32))
        return heard

    def gather(self, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """The arrays of all workers, the chief's first; all workers must call it at the same point of the run."""
        if self.workers == 1:
            return [dict(arrays)]
        return self._exchanged(_to_words(arrays), self.index, self.workers)

    def barrier(self) -> None:
        """Wait until all workers have called this."""
        self.gather({})

    def from_chief(self, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The chief's result of `make`, on all workers; its UserError or OSError raises an error on all."""
        if self.workers == 1:
            return dict(make())
        made: Mapping[str, np.ndarray] = {}
        mistake: UserError | OSError | None = None
        if self.is_chief:
            try:
                made = make()
            except (UserError, OSError) as error:
                made, mistake = {"mistake": from_text(str(error))}, error
        words = _to_words(made) if self.is_chief else np.zeros(0, np.int32)
        (arrays,) = self._exchanged(words, row=0, rows=1)
        if mistake is not None:
            raise mistake
        if "mistake" in arrays:
            raise UserError(f"Worker 0 says: {to_text(arrays['mistake'])}")
        return arrays

    def _exchanged(self, words: np.ndarray, row: int, rows: int) -> list[dict[str, np.ndarray]]:
        """The arrays in all rows of a joint table; this worker writes its words, if it has any, into one of them."""
        lengths = np.zeros((1, rows), np.int32)
        lengths[0, row] = len(words)
        (lengths,) = self._sum(lengths).numpy()
        table = np.zeros((rows, lengths.max()), np.int32)
        table[row, : len(words)] = words
        return [_from_words(found[:n]) for found, n in zip(self._sum(table).numpy(), lengths, strict=True)]

    def _summed(self, table: tf.Tensor) -> tf.Tensor:
        return self.first(self.run(self._added, table))

    def _added(self, table: tf.Tensor) -> tf.Tensor:
        is_first = tf.equal(self._replica() % self.local, 0)  # add the table of a process once, not once per replica
        return _context().all_reduce(tf.distribute.ReduceOp.SUM, tf.where(is_first, table, tf.zeros_like(table)))

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Report a lost worker; TensorFlow notices the chief's loss at once, another's within some 12 seconds.

        Raises:
            CrashError: if a worker is lost.
        """
        try:
            yield
        except (tf.errors.OpError, RuntimeError) as error:
            if self.workers == 1 or not _is_of_the_connection(error):
                raise
            raise CrashError(
                f"Worker {self.index} has lost the others of its {self.workers} workers: one of them has ended, or "
                "cannot be reached. Its own words say why; start all of them again with --auto-resume, and they "
                "continue from the last checkpoint."
            ) from None


ALONE = Replicas()


def open_replicas(config: Config) -> tuple[Config, Replicas]:
    """Set up the replicas of `config.runtime`; call it before any other use of TensorFlow.

    Returns:
        The configuration with the actual numbers of workers and replicas, and the replicas.

    Raises:
        UserError: if the devices are missing, or the cluster cannot be formed.
    """
    if config.runtime.strategy == "multiworker":
        return _open_workers(config)
    _check_used(config.runtime.strategy)
    if config.runtime.strategy == "none":
        return config, ALONE
    devices = _devices(config.runtime)
    strategy = tf.distribute.MirroredStrategy(devices) if len(devices) > 1 else None
    return changed(config, {"runtime.replicas": len(devices)}), Replicas(strategy, local=len(devices))


def check_agreement(replicas: Replicas, config: Config, versions: Mapping[str, str]) -> None:
    """Check that all workers have the same configuration and versions.

    Raises:
        UserError: on all workers, if one differs from the chief.
    """
    if replicas.workers == 1:
        return
    mine = {**dotted(dump_config(config)), **versions}
    first, *others = [json.loads(to_text(w["text"])) for w in replicas.gather({"text": from_text(json.dumps(mine))})]
    for index, other in enumerate(others, 1):
        for key in sorted({*first, *other}):
            if first.get(key) != other.get(key):
                raise UserError(
                    f"Worker {index} has {key}={other.get(key)}, and the chief, worker 0, has {first.get(key)}: start "
                    "all workers with the same command and the same versions."
                )


def from_text(text: str) -> np.ndarray:
    """A text as an array for `gather`."""
    return np.frombuffer(text.encode(), np.uint8)


def to_text(array: np.ndarray) -> str:
    """The text of `from_text`."""
    return array.tobytes().decode()


def _context() -> Any:
    return tf.distribute.get_replica_context()


def _check_used(strategy: str) -> None:
    """Check that there is no unused cluster in TF_CONFIG: each of its workers would train a separate run."""
    cluster = None
    with contextlib.suppress(UserError):  # malformed: not meant for a2c
        cluster = find_cluster() if "TF_CONFIG" in os.environ else None
    if cluster is not None and cluster.size > 1:
        raise UserError(
            f"TF_CONFIG names {cluster.size} workers, but runtime.strategy={strategy}, so that each would train a run "
            "of its own; train with --strategy multiworker, or without `a2c launch` and TF_CONFIG."
        )


def _devices(config: RuntimeConfig) -> list[str]:
    """The GPUs to use; on a machine without GPUs, as many virtual CPU devices as configured."""
    gpus = tf.config.get_visible_devices("GPU")
    wanted = config.replicas or max(1, len(gpus))
    if gpus and wanted > len(gpus):
        raise UserError(f"runtime.replicas={wanted}, but there are {len(gpus)} GPUs; give at most that, or 0 for all.")
    if not gpus and wanted > 1:
        processor = tf.config.get_visible_devices("CPU")[0]
        try:
            tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * wanted)
        except RuntimeError:
            raise UserError(
                f"runtime.replicas={wanted} comes too late: TensorFlow runs here already; use a new process."
            ) from None
    return [f"{'GPU' if gpus else 'CPU'}:{index}" for index in range(wanted)]


def _open_workers(config: Config) -> tuple[Config, Replicas]:
    cluster = find_cluster()
    if config.runtime.workers not in (1, cluster.size):
        raise UserError(
            f"runtime.workers={config.runtime.workers}, but {cluster.source} names {cluster.size}; start as many, or "
            "begin a new run."
        )
    cluster.meet(60 * config.runtime.cluster_wait_minutes)
    with _deadline():
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=cluster.resolver())
        except (tf.errors.OpError, RuntimeError) as error:
            first_line = str(error).splitlines()[0][:200]
            raise CrashError(f"TensorFlow cannot connect the {cluster.size} workers: {first_line}.") from None
    local = strategy.num_replicas_in_sync // cluster.size
    if config.runtime.replicas not in (0, local):
        raise UserError(
            f"runtime.replicas={config.runtime.replicas}, but a worker has a replica for each of its GPUs, and one "
            f"where there is none, so here {local}; leave it out."
        )
    settled = changed(config, {"runtime.workers": cluster.size, "runtime.replicas": local})
    return settled, Replicas(strategy, workers=cluster.size, index=cluster.index, local=local)


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    """End the process if TensorFlow does not return in time: nothing else can interrupt it, not even a signal."""

    def leave() -> None:
        print(
            f"a2c: TensorFlow has not connected the workers within {FORMING_SECONDS} s, though they had met: one of "
            "them has ended meanwhile; start all of them again.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(CrashError.exit_code)

    timer = threading.Timer(FORMING_SECONDS, leave)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_of_the_connection(error: Exception) -> bool:
    """Whether a TensorFlow error comes from a lost worker."""
    return isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError) or "Collective ops is aborted" in str(
        error
    )


def _to_words(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Arrays as int32 [n], which TensorFlow sums exactly; the first word is the number of bytes that follow."""
    stream = io.BytesIO()
    # not by their names, of which `file` would be an argument of savez
    np.savez(stream, from_text(json.dumps(list(arrays))), *arrays.values())
    data = stream.getvalue()
    return np.concatenate([np.array([len(data)], np.int32), np.frombuffer(data + bytes(-len(data) % 4), np.int32)])


def _from_words(words: np.ndarray) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(words[1:].tobytes()[: words[0]]), allow_pickle=False) as file:
        names, *values = file.values()
    return dict(zip(json.loads(to_text(names)), values, strict=True))
