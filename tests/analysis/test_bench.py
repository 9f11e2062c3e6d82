"""The bench: the clock's rows are those of the real loop, the floor is counted right, and files are read with care."""

import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from math import prod
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import GRAPH, VECTORS, small_config
from gymnasium.spaces import Box
from rich.console import Console

from a2c.algorithms.algorithm import build_algorithm
from a2c.analysis import bench, floor, timed_loop
from a2c.analysis.bench import Bench, run_bench
from a2c.analysis.floor import RandomPlayer
from a2c.analysis.timed_loop import FORWARD, ROWS, TRANSFER, UPDATE, Clock, Loop, clocks_on
from a2c.config import Config, ModelConfig, UserError
from a2c.data.collector import build_collector
from a2c.envs import make_env_groups, make_simulator, make_vec_env
from a2c.execution.runtime import parts_of
from a2c.networks.model import build_model
from a2c.run.counters import Counters
from a2c.run.metrics import Writers

CATCH = small_config(env={"id": "Catch"}, runtime=GRAPH)
NAP = 0.02


def run_in(folder: Path, config: Config, steps: int, on_round: Callable[[], None] = lambda: None) -> Bench:
    """Its temporary folder is in `folder`, and gone in the end; TensorFlow puts generated code beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setattr(floor, "MATRIX_SIZE", 256)  # the real size has a test of its own
        result = run_bench(config, steps=steps, on_round=on_round)
    assert list(folder.glob("a2c-*")) == []
    return result


@pytest.fixture(scope="module")
def catch(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return run_in(tmp_path_factory.mktemp("catch"), CATCH, 1280)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory):
    """It runs on from test to test."""
    with (
        make_vec_env(CATCH.env, seed=0) as envs,
        Writers(tmp_path_factory.mktemp("loop"), CATCH, Counters()) as writers,
    ):
        algorithm = build_algorithm(CATCH, envs.observation_space, envs.num_actions)
        yield Loop(CATCH, algorithm, build_collector(CATCH, envs, algorithm.policy), writers)


def shown(*arguments) -> list[str]:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(bench.table(*arguments))
    return captured.get().splitlines()


# --- whole runs -------------------------------------------------------------------------------------------------------


def test_all_figures_of_a_run_hang_together(catch):
    assert catch.steps == 1280
    assert len(catch.rounds) == 5
    for name in bench.Round.model_fields:
        assert getattr(catch.median, name) == sorted(getattr(each, name) for each in catch.rounds)[2]
    assert catch.frames_per_second == catch.median.steps_per_second
    assert tuple(catch.milliseconds) == ROWS
    assert {row for row, milliseconds in catch.milliseconds.items() if milliseconds <= 0} == {"waiting"}  # one group
    assert catch.games > 0
    assert 1e8 < catch.memory < 1.1 * catch.peak_memory
    assert catch.config["env"]["id"] == "Catch"
    assert catch.machine["cores"] >= 1
    assert catch.machine["cpu"]
    assert "tensorflow" in catch.versions


@pytest.mark.integration
def test_pong_in_eager_execution_writes_real_metrics_for_the_fewest_steps_possible(tmp_path):
    lines = []

    def look() -> None:
        lines.append(sum(len(file.read_text().splitlines()) for file in tmp_path.rglob("metrics.jsonl")))

    result = run_in(tmp_path, small_config(runtime={"mode": "eager"}), 320, look)
    # each loop counts for itself to 2 updates a line; 10 updates of warm-up come first
    assert lines == [5, 7, 7, 9, 9]
    assert result.steps == 320
    assert result.frames_per_second == 4 * result.median.steps_per_second
    assert result.games == result.milliseconds["resets"] == 0
    assert min(result.milliseconds[row] for row in ("emulator", FORWARD, TRANSFER, UPDATE)) > 0
    assert "No game ended, so resets are missing, in the 160 steps" in bench.games_ended(result)


@pytest.mark.parametrize("steps", [1, 319])
def test_too_few_steps_are_refused_and_the_fewest_named(tmp_path, steps):
    with pytest.raises(UserError, match=r"5 rounds of 2 updates of 32 steps take 320\."):
        run_in(tmp_path, small_config(), steps)


def test_no_tracker_gets_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "matrix_rate", lambda precision: 1e10)
    trackers = {"trackers": ["tensorboard", "mlflow"]}
    config = small_config(env={"id": "Catch"}, logging=trackers)
    assert run_in(tmp_path, config, 320).config["logging"]["trackers"] == ["tensorboard"]


def test_the_actors_of_a3c_are_timed(tmp_path):
    config, clock = small_config(env={"id": "Catch", "num_envs": 8}, algorithm={"name": "a3c", "rollouts": 1}), Clock()
    parts = parts_of(config)  # one actor each: two on two cores
    with make_env_groups(config.env, seed=0, groups=parts) as envs, Writers(tmp_path, config, Counters()) as writers:
        algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
        loop = Loop(config, algorithm, build_collector(config, envs, algorithm.policy), writers)
        with clocks_on(clock, loop):
            loop.run(2)
    assert min(clock.seconds[row] for row in ("emulator", FORWARD, TRANSFER, UPDATE)) > 0


def test_all_that_ppo_computes_in_an_update_is_timed_as_the_update(tmp_path):
    config, clock = small_config(env={"id": "Catch"}, algorithm={"name": "ppo"}, runtime=GRAPH), Clock()
    with make_vec_env(config.env, seed=0) as envs, Writers(tmp_path, config, Counters()) as writers:
        algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
        collector = build_collector(config, envs, algorithm.policy)
        rollout, _ = collector.collect()
        with clocks_on(clock, Loop(config, algorithm, collector, writers)):
            algorithm._whole(rollout)
    assert clock.seconds[UPDATE] > 0
    assert clock.seconds[FORWARD] > 0


# --- the clock --------------------------------------------------------------------------------------------------------


def test_time_belongs_to_the_innermost_row_even_when_a_call_fails(monkeypatch):
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(timed_loop.time, "perf_counter", lambda: next(now))
    clock = Clock()

    def fail() -> None:
        raise ValueError

    inner = clock.timed("update", fail)

    def call() -> None:
        with pytest.raises(ValueError):
            inner()

    clock.switch("Python")  # 0
    clock.timed("transfer", call)()  # from 10 to 40, the inner one from 20 to 30
    clock.switch(None)  # 50
    clock.switch("logging")  # 60: from 50 on no time has run
    clock.switch(None)
    used = {row: seconds for row, seconds in clock.seconds.items() if seconds}
    assert used == {"Python": 20, "transfer": 20, "update": 10, "logging": 10}


def test_the_rows_sum_up_to_the_time_of_the_loop(loop):
    clock, before = Clock(), loop.counters.env_steps
    start = time.perf_counter()
    with clocks_on(clock, loop):
        speed = loop.run(4)
    outside = time.perf_counter() - start
    inside = (loop.counters.env_steps - before) / speed
    assert inside <= sum(clock.seconds.values()) <= outside


@pytest.mark.parametrize(
    ("find", "name", "row"),
    [
        (lambda loop: loop.collector.envs._simulator, "step", "emulator"),
        (lambda loop: loop.collector.envs._simulator, "reset", "resets"),
        (lambda loop: loop.collector.envs, "step", "Python"),
        (lambda loop: loop.collector, "collect", "Python"),
        (lambda loop: loop.collector, "explore", "transfer"),
        (lambda loop: loop.algorithm.policy.compiled["explore"], "execute", "policy forward"),
        (lambda loop: loop.algorithm.learn.compiled, "execute", "update"),
        (lambda loop: loop.writers, "write", "logging"),
    ],
)
def test_what_takes_time_is_seen_in_its_row(loop, find, name, row, monkeypatch):
    owner = find(loop)
    function, naps = getattr(owner, name), []

    def sleepy(*inputs):
        naps.append(NAP)
        time.sleep(NAP)
        return function(*inputs)

    loop.run(1)  # traced
    monkeypatch.setattr(owner, name, sleepy)
    clock = Clock()
    with clocks_on(clock, loop):
        loop.run(3)
    assert naps
    assert clock.seconds[row] >= sum(naps)


def test_the_value_of_a_truncated_episode_is_forward(loop):
    clock = Clock()
    with clocks_on(clock, loop):
        loop.algorithm.policy.value(loop.collector.observations)
    assert clock.seconds["policy forward"] > 0


def test_groups_count_their_mean_and_wait_for_the_slowest(monkeypatch):
    now = 0.0
    monkeypatch.setattr(timed_loop.time, "perf_counter", lambda: now)

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    def each_group(do):
        """One after the other, each in its thread."""
        for index in (0, 1):
            thread = threading.Thread(target=do, args=(index,))
            thread.start()
            thread.join()

    clock = Clock()
    clock.switch("Python")
    clock.timed_groups(each_group, 2)(lambda index: clock.timed("emulator", spend)((10, 30)[index]))
    spend(1)
    clock.switch(None)
    assert {row: seconds for row, seconds in clock.seconds.items() if seconds} == {
        "emulator": 20,
        "waiting": 20,
        "Python": 1,
    }


def test_the_rows_of_groups_sum_up_to_the_time_of_the_loop(tmp_path):
    config, clock = small_config(env={"id": "Catch"}), Clock()
    with make_env_groups(config.env, seed=0, groups=2) as envs, Writers(tmp_path, config, Counters()) as writers:
        algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
        loop = Loop(config, algorithm, build_collector(config, envs, algorithm.policy), writers)
        start = time.perf_counter()
        with clocks_on(clock, loop):
            speed = loop.run(3)
        outside = time.perf_counter() - start
    assert loop.counters.env_steps / speed <= sum(clock.seconds.values()) <= outside


@pytest.mark.integration
def test_the_floor_of_groups_is_what_all_of_them_do_at_a_time(tmp_path, monkeypatch):
    config, players = small_config(), []

    def play(player, steps, core):
        players.append(player.simulator.num_envs)
        return 100.0 * player.simulator.num_envs

    monkeypatch.setattr(RandomPlayer, "play", play)
    monkeypatch.setattr(bench, "matrix_rate", lambda precision: 7.0)
    with make_env_groups(config.env, seed=0, groups=2) as envs, Writers(tmp_path, config, Counters()) as writers:
        algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
        plain, clocked = (
            Loop(config, algorithm, build_collector(config, envs, algorithm.policy), writers) for _ in range(2)
        )
        first = next(iter(bench._rounds(plain, clocked, Clock(), 1, 1.0, lambda: None)))
    assert players == [2, 2]
    assert first.emulator_steps_per_second == 400
    assert first.flops_per_second == 14


def test_the_clocks_are_taken_off_again(loop):
    compiled = [*loop.algorithm.policy.compiled.values(), loop.algorithm.learn.compiled]
    owners = (loop, *compiled, loop.collector, loop.collector.envs._simulator)
    names = ("log", "execute", "explore", "step", "reset")
    parts = [(owner, name) for owner in owners for name in names if hasattr(owner, name)]
    before = [getattr(owner, name) for owner, name in parts]
    loop.run(1)
    with clocks_on(Clock(), loop):
        loop.run(1)
        assert compiled[-1].execute != before[parts.index((compiled[-1], "execute"))]
    loop.run(1)
    assert [getattr(owner, name) for owner, name in parts] == before


# --- the floor --------------------------------------------------------------------------------------------------------


def test_the_nature_network_by_hand():
    model = build_model(ModelConfig(), Box(0, 255, (84, 84, 4), np.uint8), 6, seed=0)
    first = 2 * (8 * 8 * 4 * 32) * 20 * 20
    second = 2 * (4 * 4 * 32 * 64) * 9 * 9
    third = 2 * (3 * 3 * 64 * 64) * 7 * 7
    dense = 2 * (7 * 7 * 64 * 512)
    flops = [floor.layer_flops(layer) for layer in model.layers if hasattr(layer, "kernel")]
    assert flops[:4] == [first, second, third, dense]
    forward = first + second + third + dense + 2 * 512 * (6 + 1)
    assert sum(flops) == forward == 18_693_120
    # 5 steps are acted on, 6 are seen by the update, 5 of them learned from; the pixels need no gradient
    assert 5 * floor.flops_per_step(model, Config()) == pytest.approx((5 + 6 + 2 * 5) * forward - 5 * first, rel=1e-12)


def test_no_first_layer_needs_the_gradient_of_its_inputs():
    joint, apart = (
        build_model(ModelConfig(hidden_sizes=(8,), separate_value=separate), VECTORS, 6, seed=0)
        for separate in (False, True)
    )
    first, heads = 2 * VECTORS.shape[0] * 8, 2 * 8 * (6 + 1)
    for model, layers in ((joint, 1), (apart, 2)):
        forward = layers * first + heads
        wanted = (5 + 6 + 2 * 5) * forward - 5 * layers * first
        assert 5 * floor.flops_per_step(model, Config()) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("model", [{"name": "small", "conv_layers": [[4, 4, 4], [8, 4, 2]]}, {"name": "nature"}])
def test_the_count_is_that_of_the_compiled_graphs(model):
    config = small_config(model=model, env={"screen_size": 84})
    t, b = config.algorithm.rollout_length, config.env.num_envs
    space = Box(0, 255, (84, 84, 4), np.uint8)
    algorithm = build_algorithm(config, space, 6)
    act = tf.function(algorithm.policy.model).get_concrete_function(tf.TensorSpec((b, 84, 84, 4), tf.uint8))
    update = tf.function(algorithm.learn.apply).get_concrete_function(algorithm.learn.signature)
    counted = t * graph_flops(act) + graph_flops(update)
    assert floor.flops_per_step(algorithm.policy.model, config) == pytest.approx(counted / (t * b), rel=1e-12)


def graph_flops(function) -> int:
    """From the operations: their output once for each element that is summed, times two."""
    flops = 0
    for operation in function.graph.get_operations():
        if operation.outputs and not operation.outputs[0].consumers():
            continue  # the gradient of the pixels, which is pruned before the graph runs
        if operation.type == "MatMul":
            summed = operation.inputs[0].shape[0 if operation.get_attr("transpose_a") else 1]
            flops += 2 * prod(operation.outputs[0].shape) * summed
        elif operation.type == "Conv2D":
            flops += 2 * prod(operation.outputs[0].shape) * prod(operation.inputs[1].shape[:3])
        elif operation.type == "Conv2DBackpropInput":
            flops += 2 * prod(operation.inputs[2].shape) * prod(operation.inputs[1].shape[:3])
        elif operation.type == "Conv2DBackpropFilter":
            flops += 2 * prod(operation.inputs[2].shape) * prod(operation.outputs[0].shape[:3])
    return flops


def test_the_floor_is_emulator_and_network_one_after_the_other():
    # 1 ms of emulator and 1 ms of network
    result = bench.make_round(400.0, 1000.0, flops_per_second=1e9, flops_per_step=1e6)
    assert result.floor_steps_per_second == pytest.approx(500)
    assert result.achieved == pytest.approx(0.8)


@pytest.mark.parametrize(("precision", "dtype"), [("float32", tf.float32), ("mixed_bfloat16", tf.bfloat16)])
def test_matrices_are_multiplied_in_the_precision_of_the_run(monkeypatch, precision, dtype):
    multiply, seen = tf.linalg.matmul, []

    def look(a, b):
        seen.append((a.dtype, a.shape, b.shape))
        return multiply(a, b)

    monkeypatch.setattr(tf.linalg, "matmul", look)
    start = time.perf_counter()
    rate = floor.matrix_rate(precision)
    assert set(seen) == {(dtype, (2048, 2048), (2048, 2048))}
    # more than half of the products took at least the median, all of them no more than the whole
    assert rate >= 3 * 2 * 2048**3 / (time.perf_counter() - start)


def test_the_random_player_resets_what_ended_without_seeds():
    cart_pole = small_config(env={"id": "CartPole-v1"}, model={"name": "auto"})
    with closing(make_simulator(cart_pole.env)) as simulator:  # its episodes end at different times
        reset, step = simulator.reset, simulator.step
        resets, ends, actions = [], [], []

        def watched_reset(mask, seeds):
            resets.append((mask.copy(), seeds))
            return reset(mask, seeds)

        def watched_step(row):
            actions.append(row)
            outcome = step(row)
            ends.append(outcome.terminated | outcome.truncated)
            return outcome

        simulator.reset, simulator.step = watched_reset, watched_step
        player = RandomPlayer(simulator, seed=0)
        speed = player.play(200)
    assert speed > 0
    assert np.shape(actions) == (200, 4)
    assert set(np.unique(actions)) == {0, 1}
    assert len(resets[0][1]) == 4
    assert all(seeds is None for _, seeds in resets[1:])
    ended = [row for row in ends if row.any()]
    assert ended
    assert not np.all(ended)
    assert np.array_equal([mask for mask, _ in resets[1:]], ended)


# --- files, comparison, words -----------------------------------------------------------------------------------------


def test_a_bench_is_read_back_as_it_was_written(catch, tmp_path):
    catch.write(tmp_path / "bench.json")
    assert bench.read_bench(tmp_path / "bench.json") == catch
    assert [file.name for file in tmp_path.iterdir()] == ["bench.json"]
    assert json.loads((tmp_path / "bench.json").read_text())["median"] == catch.median.model_dump()


@pytest.mark.parametrize(
    "spoil", ["empty", "list", "foreign", "missing key", "extra key", "wrong type", "huge", "no UTF-8"]
)
def test_another_file_is_refused(catch, tmp_path, spoil):
    values = catch.model_dump(mode="json")
    texts = {
        "empty": b"",
        "list": b"[1]",
        "foreign": json.dumps({"mean": 3.0}).encode(),
        "missing key": json.dumps({key: value for key, value in values.items() if key != "median"}).encode(),
        "extra key": json.dumps({**values, "more": 1}).encode(),
        "wrong type": json.dumps({**values, "rounds": "five"}).encode(),
        "huge": json.dumps({**values, "peak_memory": 10**400}).encode(),
        "no UTF-8": b"\xff\xfe",
    }
    file = tmp_path / "f.json"
    file.write_bytes(texts[spoil])
    with pytest.raises(UserError, match=r"f\.json was not written by"):
        bench.read_bench(file)


def test_a_file_that_is_not_there_or_cannot_be_written_is_one_sentence(catch, tmp_path):
    with pytest.raises(UserError, match=r"nothing\.json cannot be read: No such file"):
        bench.read_bench(tmp_path / "nothing.json")
    with pytest.raises(UserError, match=r"b\.json cannot be written: No such file"):
        catch.write(tmp_path / "no" / "b.json")


def test_the_table_holds_every_figure_within_80_columns(catch):
    lines = shown(catch)
    for row in ROWS:
        (line,) = (line for line in lines if line.startswith(f"  {row} ") and line.endswith("%"))
        share = 100 * catch.milliseconds[row] / sum(catch.milliseconds.values())
        assert line.split()[-3:] == [f"{catch.milliseconds[row]:.4f}", f"{share:.1f}", "%"]
    achieved = [each.achieved for each in catch.rounds]
    (line,) = (line for line in lines if line.startswith("achieved"))
    assert line.split()[-4:] == [f"{catch.median.achieved:.3f}", f"{min(achieved):.3f}", "to", f"{max(achieved):.3f}"]
    assert any(line.split()[:2] == ["agent", "steps/s"] for line in lines)
    assert "…" not in "".join(lines)


def test_a_comparison_shows_then_and_the_ratio_of_every_figure(catch):
    twice = catch.median.model_copy(update={"steps_per_second": 2 * catch.median.steps_per_second})
    half = {row: milliseconds / 2 for row, milliseconds in catch.milliseconds.items() if row != "logging"}
    then = catch.model_copy(update={"median": twice, "milliseconds": half, "memory": None, "peak_memory": 0})
    lines = {line[:25].strip(): line.split() for line in shown(catch, then)}
    assert lines["agent steps/s"][-2:] == [f"{2 * catch.median.steps_per_second:,.0f}", "0.50"]
    assert lines["emulator"][-2:] == [f"{catch.milliseconds['emulator'] / 2:.4f}", "2.00"]
    assert lines["frames/s"][-1] == "1.00"
    assert lines["floor, steps/s"][-1] == "1.00"
    assert lines["logging"][-2:] == ["-", "-"]
    assert lines["memory now, MB"][-2:] == ["-", "-"]
    assert lines["peak memory, MB"][-2:] == ["0", "-"]
    assert all(len(line) <= 80 for line in shown(catch, then))


def test_differences_name_configuration_machine_and_versions_but_not_our_own(catch):
    assert bench.differences(catch, catch) == []
    newer = {"versions": {**catch.versions, "a2c": "99"}}
    assert bench.differences(catch, catch.model_copy(update=newer)) == []
    config = {**catch.config, "env": {**catch.config["env"], "num_envs": 9}, "gone": 1}
    other = {
        "config": config,
        "machine": {**catch.machine, "cores": 999},
        "versions": {**catch.versions, "numpy": "0"},
    }
    assert bench.differences(catch, catch.model_copy(update=other)) == [
        "env.num_envs (4 now, 9 then)",
        f"cores ({catch.machine['cores']} now, 999 then)",
        f"numpy ({catch.versions['numpy']} now, 0 then)",
        "gone (None now, 1 then)",
    ]
