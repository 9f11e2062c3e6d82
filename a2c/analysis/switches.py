"""TensorFlow's switches that make graphs differ from eager execution, and the smallest set of them to switch off."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

GRAPPLER_PASSES = (  # on by default; named as in tf.config.optimizer
    "arithmetic_optimization",
    "constant_folding",
    "remapping",
    "layout_optimizer",
    "shape_optimization",
    "dependency_optimization",
    "loop_optimization",
    "function_optimization",
)
ONEDNN = "oneDNN"
THREADS = "several threads"
NONDETERMINISM = "nondeterminism"
SWITCHES = (*GRAPPLER_PASSES, ONEDNN, THREADS, NONDETERMINISM)


# for each set of switches to turn off: whether eager and graph agree in every bit
Trial = Callable[[Sequence[frozenset[str]]], Sequence[bool]]


def environment(off: Iterable[str]) -> dict[str, str]:
    """The environment variables of a new process, for the switches that TensorFlow reads at its start."""
    return {"TF_ENABLE_ONEDNN_OPTS": "0" if ONEDNN in off else "1"}


def switch_off(off: Iterable[str]) -> None:
    """Switch these off in this process, which must be fresh and started with `environment(off)`."""
    off = set(off)
    tf.config.optimizer.set_experimental_options({name: name not in off for name in GRAPPLER_PASSES})
    if THREADS in off:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    if NONDETERMINISM in off:
        tf.config.experimental.enable_op_determinism()


def smallest_set(trial: Trial, switches: Sequence[str] = SWITCHES) -> frozenset[str] | None:
    """Find the smallest set of switches that makes eager and graph agree when switched off.

    If no single one suffices, the search assumes that switching off more never breaks an agreement. Then a switch that
    all the others together cannot replace belongs to every sufficient set. These switches are found first, and others
    are added only if these do not suffice.

    Args:
        trial: tries each of the given sets; returns in the same order whether eager and graph agree.
        switches: the candidates.

    Returns:
        The set; empty if nothing needs to be switched off; None if even all of them do not suffice.
    """
    everything = frozenset(switches)
    few = [frozenset(), *(frozenset([switch]) for switch in switches)]
    for candidate, agrees in zip(few, trial(few), strict=True):
        if agrees:
            return candidate
    if not trial([everything])[0]:
        return None
    all_but_one = trial([everything - {switch} for switch in switches])
    needed = frozenset(switch for switch, agrees in zip(switches, all_but_one, strict=True) if not agrees)
    others = [switch for switch in switches if switch not in needed]
    for size in range(len(others) + 1):
        candidates = [needed | set(more) for more in itertools.combinations(others, size)]
        for candidate, agrees in zip(candidates, trial(candidates), strict=True):
            if agrees:
                return candidate
    raise AssertionError("all switches together suffice, so the loop ends")


def label(switch: str) -> str:
    """The switched-off state in words."""
    return {THREADS: "one thread", NONDETERMINISM: "op determinism on"}.get(switch, f"{switch} off")
