"""Environments and batches in parts: the same bits whichever is faster, in eager and graph, and after a resume."""

import _thread
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import VECTORS, A, make_trajectory, run_config, small_config
from gymnasium.spaces import Box

import a2c.envs
from a2c.algorithms.a2c import A2C
from a2c.algorithms.algorithm import build_algorithm
from a2c.analysis.bench import read_bench
from a2c.config import Config, UserError, load_config
from a2c.data.collector import RolloutCollector
from a2c.data.rollout import Episode, Rollout
from a2c.envs import Group, VecEnv, VecEnvGroups, make_env_groups, make_vec_env
from a2c.envs.groups import _GroupThread
from a2c.execution import runtime
from a2c.execution.machine import core_numbers
from a2c.execution.runtime import parts_of
from a2c.run.lookup import find_checkpoint
from a2c.run.training import weights_of


def more_thorough(*cases: tuple) -> list:
    """Cases that the default tests leave to the integration tests."""
    return [pytest.param(*case, marks=pytest.mark.integration) for case in cases]


SEED = 2**63 - 1  # of actions: the largest there is
# short games, some ended by the time limit
BREAKOUT = small_config(env={"id": "Breakout", "max_frames_per_episode": 800, "reseed_after": 100})
TOY = small_config(env={"id": "FrozenLake-v1"})  # four actions as Breakout, and nothing to emulate


def act(observations: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Any function of both."""
    hashes = [zlib.crc32(x.tobytes() + seed.tobytes()) % 2**31 for x in observations]  # the same in every process
    return np.array(hashes, np.int32) % 4, {"logits": np.array(hashes, np.float32)[:, None] * np.ones(4, np.float32)}


def run_python(code: str, cwd: Path, *, timeout: float) -> str:
    """What a program prints that can import this file."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
    ).stdout


def collector(
    envs: VecEnv | VecEnvGroups, *, act: Callable = act, config: Config = BREAKOUT, seed: int = SEED
) -> RolloutCollector:
    return RolloutCollector(
        envs, act, {"logits": (4,)}, rollout_length=config.algorithm.rollout_length, action_seed=seed
    )


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def joined(rollouts: Sequence[Rollout]) -> dict[str, np.ndarray]:
    """The arrays of all their environments side by side; the last observations by row, then by environment."""
    each = [rollout._replace(last_observations=rollout.actions).arrays() for rollout in rollouts]
    arrays = {name: np.concatenate([one[name] for one in each], axis=1) for name in each[0]}
    last, width = [iter(rollout.last_observations) for rollout in rollouts], rollouts[0].actions.shape[1]
    rows = [next(last[b // width]) for _, b in np.argwhere(arrays["truncated"])]
    arrays["last_observations"] = np.stack(rows) if rows else rollouts[0].last_observations
    return arrays


def assert_same_state(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
        assert array.dtype == other[name].dtype


def tasks() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


# --- collecting -------------------------------------------------------------------------------------------------------


def test_groups_collect_what_each_would_alone_whoever_is_faster():
    def slow_group(observations: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if seed[0] == SEED ^ 1:
            time.sleep(0.002)
        return act(observations, seed)

    env = BREAKOUT.env.model_copy(update={"reseed_after": 10_000})  # seeded resets take long
    half = env.model_copy(update={"num_envs": 2})
    with (
        make_env_groups(env, seed=3, groups=2) as both,
        make_env_groups(env, seed=3, groups=2) as again,
        make_vec_env(half, seed=3) as first,
        make_vec_env(half, seed=3, first=2) as second,
    ):
        together, hindered = collector(both), collector(again, act=slow_group)
        alone = [collector(first), collector(second, seed=SEED ^ 1)]
        ended: list[tuple[int, Episode]] = []
        for _ in range(30):
            seen = together.observations, together.observations.copy()  # the update reads them where they are
            rollout, episodes = together.collect()
            np.testing.assert_array_equal(*seen)
            slow_rollout, slow_episodes = hindered.collect()
            parts, apart = zip(*(each.collect() for each in alone), strict=True)
            assert_equal(joined(parts), rollout.arrays())
            assert_equal(joined(parts), slow_rollout.arrays())
            numbered = [(t, e._replace(env_index=e.env_index + 2 * g)) for g, some in enumerate(apart) for t, e in some]
            assert episodes == slow_episodes == sorted(numbered, key=lambda each: each[0])
            np.testing.assert_array_equal(together.observations, rollout.observations[-1])
            ended += episodes
        assert {episode.env_index for _, episode in ended} == {0, 1, 2, 3}
        assert together.draws == 240
        assert rollout.observations.ctypes.data % 64 == 0
        assert {episode.length < 200 for _, episode in ended} == {False, True}  # by the time limit, and before


def test_last_observations_come_row_by_row_even_where_a_later_group_is_cut_first():
    half = BREAKOUT.env.model_copy(update={"num_envs": 2})
    halves = [half.model_copy(update={"max_frames_per_episode": 4 * steps}) for steps in (7, 5)]
    made = [[make_vec_env(env, seed=3, first=2 * g) for g, env in enumerate(halves)] for _ in range(2)]
    with VecEnvGroups([Group(envs) for envs in made[0]]) as both, made[1][0] as first, made[1][1] as second:
        rollout, _ = collector(both).collect()
        parts = [collector(first).collect()[0], collector(second, seed=SEED ^ 1).collect()[0]]
    assert np.argwhere(rollout.truncated).tolist() == [[4, 2], [4, 3], [6, 0], [6, 1]]
    assert_equal(joined(parts), rollout.arrays())


@pytest.mark.parametrize(("before", "after"), [(4, 2), *more_thorough((2, 2), (1, 2), (2, 1))])
def test_a_state_is_that_of_all_environments_whatever_the_groups(before, after):
    with (
        make_env_groups(BREAKOUT.env, seed=1, groups=before) as envs,
        make_env_groups(BREAKOUT.env, seed=1, groups=after) as others,
        make_vec_env(BREAKOUT.env, seed=1) as plain,
    ):
        source, other = collector(envs), collector(others)
        for _ in range(20):
            source.collect()
        state = source.state()
        assert len(set(state["series_lengths"].tolist())) > 1
        assert other.restore(state) == 0
        np.testing.assert_array_equal(other.observations, source.observations)
        assert_same_state(other.state(), state)
        observations, lost = plain.restore({key: x for key, x in state.items() if key != "draws"})
        np.testing.assert_array_equal(observations, source.observations)
        assert lost == 0
        if before == after:
            for _ in range(3):
                assert_equal(other.collect()[0].arrays(), source.collect()[0].arrays())


def test_environments_that_are_elsewhere_are_counted_over_all_groups():
    with make_env_groups(TOY.env, seed=1, groups=2) as envs:
        source = collector(envs)
        source.collect()
        state = source.state()
        state["observation_digests"][[0, 1, 3]] += np.uint64(1)
        assert source.restore(state) == 3


def test_a_state_that_cannot_be_is_refused_by_groups_too():
    with make_env_groups(TOY.env, seed=1, groups=2) as envs:
        source = collector(envs)
        source.collect()
        state = source.state()
        for spoiled in (
            {**state, "series_lengths": state["series_lengths"] + np.array([1, 0, 0, 0])},
            {**state, "series_actions": np.full_like(state["series_actions"], 4)},
            {**state, "episode_returns": state["episode_returns"][:2]},
            {name: array for name, array in state.items() if name != "episode_numbers"},
        ):
            with pytest.raises(UserError, match="does not fit this environment"):
                source.restore(spoiled)
        assert source.restore(state) == 0  # it is what was changed that does not fit


def test_a_group_keeps_its_thread_until_the_environments_are_closed():
    def here(group: int) -> threading.Thread:
        if fail:
            raise ValueError(f"group {group}")
        return threading.current_thread()

    fail = False
    with make_env_groups(TOY.env, seed=1, groups=2) as envs:
        first = envs.each(here)
        fail = True
        with pytest.raises(ValueError, match="group 0"):
            envs.each(here)
        fail = False
        assert envs.each(here) == first
        assert len({threading.current_thread(), *first}) == 3
    for thread in first:
        thread.join(10)
        assert not thread.is_alive()


def test_nobody_is_stepped_any_more_when_an_error_arrives():
    """Else the environments would be closed under the feet of the other group."""
    ended = []

    def failing(observations: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if seed[0] == SEED:
            raise ValueError("no action")
        time.sleep(0.05)
        ended.append(int(seed[1]))
        return act(observations, seed)

    with make_env_groups(TOY.env, seed=1, groups=2) as envs:
        with pytest.raises(ValueError, match="no action"):
            collector(envs, act=failing).collect()
        assert ended == list(range(8))


def test_an_interrupt_before_all_have_begun_leaves_nothing_behind(monkeypatch):
    begin, interrupted, ended = _GroupThread.begin, [], []

    def slow(group: int) -> str:
        time.sleep(0.2)
        ended.append(group)
        return "old"

    def interrupting(thread: _GroupThread, do: Callable[[int], str] | None) -> None:
        if do is slow and thread.name.endswith("1"):
            raise KeyboardInterrupt
        begin(thread, do)

    with make_env_groups(TOY.env, seed=1, groups=2) as envs:
        monkeypatch.setattr(_GroupThread, "begin", interrupting)
        with pytest.raises(KeyboardInterrupt):
            envs.each(slow, interrupt=lambda: interrupted.append(True))
        assert interrupted == [True]
        assert ended == [0]
        assert envs.each(lambda group: group) == [0, 1]


def test_an_interrupt_does_not_wait_for_a_group_that_hangs(monkeypatch):
    begin, released, ended, daemons = _GroupThread.begin, threading.Event(), [], []

    def hang(group: int) -> None:
        daemons.append(threading.current_thread().daemon)  # else Python would wait for it in the end
        released.wait(60)
        ended.append(group)

    def interrupting(thread: _GroupThread, do: Callable[[int], None] | None) -> None:
        if do is hang and thread.name.endswith("1"):
            raise KeyboardInterrupt
        begin(thread, do)

    monkeypatch.setattr(a2c.envs.groups, "PATIENCE", 0.2)
    monkeypatch.setattr(_GroupThread, "begin", interrupting)
    with make_env_groups(TOY.env, seed=1, groups=2) as envs:
        with pytest.raises(KeyboardInterrupt):
            envs.each(hang)
        assert (daemons, ended) == ([True], [])
        released.set()


def test_a_signal_that_comes_just_before_the_main_thread_waits_ends_its_waiting(monkeypatch):
    outcome, begun, released, in_time = _GroupThread.outcome, threading.Event(), threading.Event(), []

    def waiting(thread: _GroupThread) -> object:
        begun.set()
        return outcome(thread)

    def hang(group: int) -> None:
        if group == 0:
            begun.wait(20)
            time.sleep(0.2)  # from the call of `outcome` until it waits
            _thread.interrupt_main()  # as such a signal, it does not wake it
        in_time.append(released.wait(20))

    monkeypatch.setattr(_GroupThread, "outcome", waiting)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    gc.disable()  # Python ignores what is raised in a weak reference's callback
    try:
        with make_env_groups(TOY.env, seed=1, groups=2) as envs:
            with pytest.raises(KeyboardInterrupt):
                envs.each(hang, interrupt=released.set)
            assert in_time == [True, True]
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, before)


def test_a_group_keeps_nothing_of_what_it_has_done():
    rollout, played = np.ones(3), np.zeros(3)
    with make_env_groups(TOY.env, seed=1, groups=2) as envs:
        envs.each(lambda group, rollout=rollout, played=played: played)
        last = weakref.ref(rollout), weakref.ref(played)
        del rollout, played
        deadline = time.monotonic() + 10
        while any(each() is not None for each in last) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [each() for each in last] == [None, None]


@pytest.mark.integration
def test_nobody_is_stepped_any_more_when_an_interrupt_arrives(tmp_path):
    """Ctrl-C in the main thread, which waits: the groups end the step they are in, and do no other."""
    code = """
import os, signal, time, numpy as np
from a2c.envs import make_env_groups
from test_groups import BREAKOUT, act, collector
steps = []
def slow(observations, seed):
    steps.append(seed)
    if len(steps) == 4:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
    return act(observations, seed)
signal.signal(signal.SIGINT, signal.default_int_handler)
with make_env_groups(BREAKOUT.env, seed=1, groups=2) as envs:
    try:
        collector(envs, act=slow).collect()
    except KeyboardInterrupt:
        done = len(steps)
        time.sleep(3)
        print(done, len(steps))
"""
    before, after = run_python(code, tmp_path, timeout=300).split()
    assert before == after
    assert 4 <= int(after) <= 6


@pytest.mark.integration
@pytest.mark.parametrize("doing", ["collect", "restore"])
def test_a_group_that_hangs_does_not_keep_the_program(tmp_path, doing):
    code = """
import os, signal, time
import a2c.envs.groups
from a2c.envs import make_env_groups
from test_groups import BREAKOUT, SEED, act, collector
a2c.envs.groups.PATIENCE = 2.0
def hang(observations, seed):
    if seed[0] == SEED:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)
signal.signal(signal.SIGINT, signal.default_int_handler)
with make_env_groups(BREAKOUT.env, seed=1, groups=2) as envs:
    try:
        if DOING == "collect":
            collector(envs, act=hang).collect()
        played = collector(envs)
        played.collect()
        envs.groups[0].envs._simulator.step = lambda actions: hang(actions, [SEED])
        played.restore(played.state())
    except KeyboardInterrupt:
        print("left")
"""
    assert run_python(code.replace("DOING", repr(doing)), tmp_path, timeout=300) == "left\n"


def test_a_group_has_a_core_of_its_own_where_there_are_as_many(monkeypatch):
    everywhere = os.sched_getaffinity(0)
    cores = (core_numbers() * 2)[:2]
    monkeypatch.setattr(a2c.envs, "core_numbers", lambda: cores)
    seen = []

    def look(observations: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append((int(seed[0] != SEED), os.sched_getaffinity(0)))
        return act(observations, seed)

    before = tasks()
    with make_env_groups(BREAKOUT.env, seed=1, groups=2) as envs:
        emulators = [os.sched_getaffinity(thread) for thread in tasks() - before]
        assert sorted(emulators, key=min) == sorted([{core} for core in cores], key=min)
        collector(envs, act=look).collect()
    assert {(group, *on) for group, on in seen} == set(enumerate(cores))
    assert os.sched_getaffinity(0) == everywhere
    monkeypatch.setattr(a2c.envs, "core_numbers", lambda: [0, 1, 2])
    with make_env_groups(BREAKOUT.env, seed=1, groups=2) as envs:
        assert [group.core for group in envs.groups] == [None, None]


# --- how many parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "settings", "parts"),
    [
        (2, [], 2),
        (1, [], 1),
        (4, [], 4),
        (8, [], 1),  # 2 environments each are too few
        (4, ["env.num_envs=32"], 4),
        (3, ["env.num_envs=32"], 1),  # no equal shares
        (8, ["runtime.threads=2"], 2),
        (2, ["runtime.threads=1"], 1),
        (2, ["env.num_envs=8"], 2),
        (2, ["env.num_envs=6"], 1),
        (2, ["env.threads=1"], 1),
        (2, ["env.threads=2"], 2),
        (2, ["env.backend=wrappers"], 1),
        (2, ["env.id=Catch"], 1),
        (2, ["runtime.mode=eager"], 2),
        (2, ["runtime.mode=xla"], 1),
        (2, ["runtime.strategy=mirrored"], 1),
    ],
)
def test_there_are_as_many_parts_as_threads_where_all_get_enough(monkeypatch, cores, settings, parts):
    monkeypatch.setattr(runtime, "allowed_cores", lambda: cores)
    monkeypatch.setattr(runtime, "_operations_can_have_one_thread", lambda: True)  # else as of this process
    config, _ = load_config(config="atari", env_id="Pong", assignments=settings)
    assert parts_of(config) == parts


@pytest.mark.integration
def test_runs_of_any_number_of_parts_follow_each_other_in_one_process(tmp_path):
    """The second has the one thread that the first has left, and says so; after several threads there are no parts."""
    code = """
import a2c.execution.runtime
from conftest import GRAPH, small_config
from a2c.execution.runtime import parts_of
from a2c.run.training import train
a2c.execution.runtime.allowed_cores = lambda: 2
wide = small_config(env={"num_envs": 16}, total_env_steps=128, logging={"trackers": []}, runtime=GRAPH)
small = small_config(env={"id": "Catch"}, total_env_steps=128, logging={"trackers": []}, runtime=GRAPH)
for name, config in ORDER:
    print(parts_of(config))
    train(config, name, warn=lambda sentence: print(sentence.partition(": ")[0]))
"""
    late = "runtime.threads=0 comes too late"
    order = '[("wide", wide), ("small", small), ("again", wide)]'
    assert run_python(code.replace("ORDER", order), tmp_path, timeout=120).splitlines() == ["2", "1", late, "2"]
    order = '[("first", small), ("last", wide)]'
    assert run_python(code.replace("ORDER", order), tmp_path, timeout=120).splitlines() == ["1", "1"]


def test_there_are_no_parts_on_a_gpu(monkeypatch):
    monkeypatch.setattr(runtime, "sees_gpu", lambda: True)
    assert parts_of(load_config(config="atari", assignments=["runtime.threads=2"])[0]) == 1


# --- the update -------------------------------------------------------------------------------------------------------


def a2c_in(parts: int, config: Config, space: Box) -> A2C:
    a2c = build_algorithm(config, space, A)
    a2c.parts = parts  # before it is traced
    return a2c


NETWORKS = {
    "nature": (Box(0, 255, (36, 36, 4), np.uint8), {"name": "nature"}),
    "small standardized": (Box(0, 255, (20, 20, 4), np.uint8), {"name": "small", "pixels": "standardized"}),
    "impala": (Box(0, 255, (20, 20, 4), np.uint8), {"name": "impala"}),
    "mlp": (VECTORS, {"name": "mlp"}),
}


def updated(a2c: A2C, space: Box, updates: int) -> dict[str, np.ndarray]:
    t, b = a2c.learn.signature.actions.shape
    losses = [a2c.learn(make_trajectory(seed, space, t=t, b=b)) for seed in range(updates)]
    assert all(a2c.learn.is_finite(each) for each in losses)
    named = {f"{name} {u}": x.numpy() for u, each in enumerate(losses) for name, x in each.items()}
    slots = {f"slot {i}": v.numpy() for i, v in enumerate(a2c.variables["optimizer"])}
    return {**weights_of(a2c.policy.model), **slots, **named}


@pytest.mark.usefixtures("exact_numerics")
@pytest.mark.parametrize(
    ("network", "precision"),
    [
        ("small standardized", "mixed_bfloat16"),
        ("mlp", "float32"),
        *more_thorough(("impala", "float32"), ("impala", "mixed_bfloat16")),
        *more_thorough(
            ("nature", "float32"),
            ("nature", "mixed_bfloat16"),
            ("small standardized", "float32"),
            ("mlp", "mixed_bfloat16"),
        ),
    ],
)
def test_an_update_in_parts_has_the_same_bits_in_eager_and_graph(network, precision):
    space, model = NETWORKS[network]
    eager, graph = (
        updated(a2c_in(2, run_config(model, {}, mode, precision, normalize_advantages=True), space), space, 10)
        for mode in ("eager", "graph")
    )
    assert [name for name in eager if eager[name].tobytes() != graph[name].tobytes()] == []


@pytest.mark.usefixtures("exact_numerics")
@pytest.mark.parametrize(
    ("network", "parts"),
    [
        ("small standardized", 4),
        ("mlp", 2),
        *more_thorough(("nature", 2), ("impala", 4)),
    ],
)
def test_an_update_in_parts_is_that_of_the_whole_batch(network, parts):
    """But for the order in which it is summed: one update, of every stage of which 1e-5 relative is asked."""
    space, model = NETWORKS[network]
    config = run_config(model, {}, "graph", normalize_advantages=True)
    whole, cut = (updated(a2c_in(p, config, space), space, 1) for p in (1, parts))
    assert whole.keys() == cut.keys()
    for name, array in whole.items():
        np.testing.assert_allclose(cut[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.integration
def test_the_parts_of_an_update_are_worked_on_at_a_time(tmp_path):
    """Each waits for the other in the middle of its forward pass."""
    code = """
import threading
import tensorflow as tf
from conftest import make_trajectory, run_config, VECTORS, A
import a2c.algorithms.a2c
from a2c.algorithms.a2c import A2C
from a2c.algorithms.algorithm import build_algorithm
from a2c.execution.runtime import setup
a2c.algorithms.a2c.parts_of = lambda config: 2
config = run_config({"name": "mlp"}, {}, "graph")
setup(config.runtime, parts=2)
both, forward = threading.Barrier(2), A2C._pass
def meeting(self, observations, after):
    def wait(x):
        both.wait(60)
        return x
    met = tf.numpy_function(wait, [observations], observations.dtype, stateful=False)
    return forward(self, tf.ensure_shape(met, observations.shape), after)
A2C._pass = meeting
learner = build_algorithm(config, VECTORS, A)
print(learner.learn.is_finite(learner.learn(make_trajectory(0, t=5, b=4))))
"""
    assert run_python(code, tmp_path, timeout=120) == "True\n"


def test_the_bootstrap_values_of_a_part_come_after_it():
    """Both first would leave one core with the rest: 2 of 23 ms with the network `nature`."""
    space, model = NETWORKS["small standardized"]
    a2c = a2c_in(2, run_config(model, {}, "graph"), space)
    graph = tf.function(a2c.learn.apply).get_concrete_function(a2c.learn.signature).graph
    first, after, *_ = (op for op in graph.get_operations() if op.type == "Conv2D" and "conv_1" in op.name)
    assert first.inputs[0].shape[0] == 10
    assert after.inputs[0].shape[0] == 2
    ancestors, todo = set(), [after]
    while todo:
        operation = todo.pop()
        if operation not in ancestors:
            ancestors.add(operation)
            todo += [each.op for each in operation.inputs] + list(operation.control_inputs)
    assert first in ancestors


# --- whole runs -------------------------------------------------------------------------------------------------------

RUN = """
total_env_steps: 1280
env: {id: Pong, num_envs: 16, screen_size: 42, sticky_action_probability: 0.25, max_frames_per_episode: 200}
model: {name: small, conv_layers: [[4, 4, 4], [8, 4, 2]]}
algorithm: {rollout_length: 8, normalize_advantages: true}
runtime: {threads: 2}
logging: {every_updates: 2}
checkpoint: {every_updates: 100}
"""


# `a2c train` three times, and what it was made of
LOOK = """
import sys, a2c.run.training, tensorflow as tf
from a2c.cli import main
build = a2c.run.training.build_algorithm
def look(*arguments, **options):
    learner = build(*arguments, **options)
    threading = tf.config.threading
    print(learner.parts, threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads())
    return learner
collect = a2c.run.training.build_collector
def look_at(*arguments):
    collector = collect(*arguments)
    print(len(collector.groups))
    return collector
a2c.run.training.build_algorithm, a2c.run.training.build_collector = look, look_at
train = ["train", "--config", "run.yaml", "--run-dir"]
for words in ([*train, "graph"], [*train, "eager", "--eager"], [*train, "resumed", "--steps", "640"]):
    sys.argv = ["a2c", *words, "--quiet"]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code
"""


@pytest.mark.integration
def test_a_run_in_parts_has_the_same_bits_in_eager_in_graph_and_resumed(tmp_path):
    """The first three in one process, the rest of the third in another."""
    assert parts_of(load_config(config=write(tmp_path / "run.yaml", RUN))[0]) == 2
    made = ["2", "1", "2", "2"]  # parts, intra-op, inter-op; groups
    assert run_python(LOOK, tmp_path, timeout=300).split() == 3 * made
    resume = ["resume", "resumed", "--steps", "1280", "--quiet"]
    subprocess.run([sys.executable, "-m", "a2c", *resume], cwd=tmp_path, check=True, timeout=300)
    assert find_checkpoint(tmp_path / "graph").arrays["collector/episode_numbers"].min() > 0
    graph, eager, resumed = (find_checkpoint(tmp_path / name).bits for name in ("graph", "eager", "resumed"))
    for other in (eager, resumed):
        assert graph.keys() == other.keys()
        assert [name for name in graph if graph[name] != other[name]] == []


@pytest.mark.integration
def test_a_run_in_parts_is_timed_part_by_part(tmp_path):
    write(tmp_path / "run.yaml", RUN)
    command = [sys.executable, "-m", "a2c", "bench", "--config", "run.yaml", "--steps", "1280", "--json", "bench.json"]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.PIPE, timeout=300)
    bench = read_bench(tmp_path / "bench.json")
    assert min(bench.milliseconds[row] for row in ("emulator", "policy forward", "update", "waiting")) > 0


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path
