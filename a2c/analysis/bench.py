"""Where the time of training goes, and how near it is to the floor of this machine.

Each round times the plain loop, the loop with a clock on its parts, the bare emulator, and matrix products, so that
other load on the machine affects all of them. Speeds are medians over rounds.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError
from rich.table import Table

from a2c.algorithms.algorithm import build_algorithm
from a2c.analysis.floor import RandomPlayer, flops_per_step, matrix_rate
from a2c.analysis.timed_loop import Clock, Loop, clocks_on
from a2c.config import Config, UserError, changed, dotted, dump_config
from a2c.data.collector import build_collector
from a2c.envs import make_env_groups, make_simulator, share_of_group
from a2c.execution.machine import allowed_cores, core_quota, processor, versions
from a2c.execution.runtime import parts_of, setup, stream_seed
from a2c.messages import number
from a2c.reading import LARGEST_TEXT, read_bytes
from a2c.run.counters import Counters
from a2c.run.files import write_result
from a2c.run.metrics import Writers

ROUNDS = 5
DEFAULT_STEPS = 40_000  # enough for some games of each environment to end, so that resets are measured
WARM_UP_UPDATES = 10
CLOCKED, ACHIEVED = "ms per step, with clocks", "achieved / floor"


Bytes = Annotated[int, Field(ge=0, lt=2**63)]


class Round(BaseModel, frozen=True, extra="forbid"):
    """The speeds of one round of a few seconds, so that their ratio is fair; or the medians of several rounds."""

    steps_per_second: float  # agent steps of the loop, without clocks
    emulator_steps_per_second: float  # of the bare emulator with random actions
    flops_per_second: float  # of matrix products, in the precision of the run
    floor_steps_per_second: float  # if emulator and network ran one after the other, and nothing else
    achieved: float  # the loop's speed / the floor


class Bench(BaseModel, frozen=True, extra="forbid"):
    """Everything that is printed, and the circumstances that should be the same if two results are compared."""

    median: Round
    frames_per_second: float
    milliseconds: dict[str, float]  # per agent step, for each of timed_loop.ROWS; measured with clocks
    steps: int  # agent steps of the loop that were timed, half of them with clocks
    games: int  # that ended while the clocks ran
    flops_per_step: float  # of the network, per agent step
    peak_memory: Bytes  # resident bytes, before the floor is measured
    memory: Bytes | None  # resident bytes at that moment; None if the system does not report them
    rounds: tuple[Round, ...]
    config: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]

    def write(self, path: Path) -> None:
        """Write it as JSON, atomically.

        Raises:
            UserError: if the file cannot be written.
        """
        write_result(path, self.model_dump_json(indent=2) + "\n")


def read_bench(path: Path) -> Bench:
    """Read what `Bench.write` wrote.

    Raises:
        UserError: if the file cannot be read, or `Bench.write` did not write it.
    """
    try:
        return Bench.model_validate_json(read_bytes(path, LARGEST_TEXT))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError:
        raise UserError(f"{path} was not written by `a2c bench --json` of this version; name one that was.") from None


def run_bench(config: Config, *, steps: int | None = None, on_round: Callable[[], None] = lambda: None) -> Bench:
    """Run the training loop of a configuration, without evaluations and checkpoints, and measure it.

    Args:
        config: as for `train`; the length of the run is ignored.
        steps: agent steps of the loop to time, cut to whole updates. Default: DEFAULT_STEPS, or the minimum if larger.
        on_round: called at the end of each of ROUNDS rounds.

    Raises:
        UserError: if `steps` is too small, or the configuration has a strategy or cannot be run.
    """
    updates = _updates_per_chunk(config, steps)
    if config.runtime.strategy != "none":
        raise UserError("a2c bench times one learner; leave runtime.strategy out (benchmarks/workers.py has several).")
    kept = [name for name in config.logging.trackers if name == "tensorboard"]  # the others would publish a run
    config = changed(config, {"logging.trackers": kept})
    config = config.model_copy(update={"algorithm": config.algorithm.warmed_up()})
    parts = parts_of(config)
    setup(config.runtime, parts=parts)
    with (
        TemporaryDirectory(prefix="a2c-bench-") as folder,
        make_env_groups(config.env, seed=config.seed, groups=parts) as envs,
        Writers(Path(folder), config, Counters()) as writers,
    ):
        algorithm = build_algorithm(config, envs.observation_space, envs.num_actions)
        collector = build_collector(config, envs, algorithm.behaviour)
        plain, clocked = (Loop(config, algorithm, collector, writers) for _ in range(2))
        algorithm.trace()
        plain.run(WARM_UP_UPDATES)
        peak_memory, memory = _peak_memory(), _memory()
        flops = flops_per_step(algorithm.policy.model, config)
        clock = Clock()
        rounds = tuple(_rounds(plain, clocked, clock, updates, flops, on_round))
        middle = _medians(rounds)
        clocked_steps = clocked.counters.env_steps
        return Bench(
            median=middle,
            frames_per_second=middle.steps_per_second * envs.frames_per_step,
            milliseconds={row: 1e3 * seconds / clocked_steps for row, seconds in clock.seconds.items()},
            steps=2 * clocked_steps,
            games=clocked.counters.episodes,
            flops_per_step=flops,
            peak_memory=peak_memory,
            memory=memory,
            rounds=rounds,
            config=dump_config(config),
            machine={"cpu": processor(), "cores": min(allowed_cores(), core_quota())},
            versions=versions(),
        )


def _rounds(
    plain: Loop, clocked: Loop, clock: Clock, updates: int, flops: float, on_round: Callable[[], None]
) -> Iterator[Round]:
    """Time everything in turn, ROUNDS times."""
    config, parts = plain.config, len(plain.collector.groups)
    share, cores = share_of_group(config.env, parts)
    steps = updates * config.algorithm.rollout_length
    with ThreadPoolExecutor(parts) as threads, ExitStack() as stack:
        simulators = [stack.enter_context(closing(make_simulator(share, core=core))) for core in cores]
        players = [RandomPlayer(s, seed=stream_seed(config.seed, f"bench {g}")) for g, s in enumerate(simulators)]
        for _ in range(ROUNDS):
            speed = plain.run(updates)
            with clocks_on(clock, clocked):
                clocked.run(updates)
            emulator = sum(threads.map(lambda player, core: player.play(steps, core), players, cores))
            matrices = sum(threads.map(matrix_rate, [config.runtime.precision] * parts))
            yield make_round(speed, emulator, matrices, flops)
            on_round()


def make_round(steps_per_second: float, emulator: float, flops_per_second: float, flops_per_step: float) -> Round:
    """Compare the speed of the loop with the floor; `emulator` is in agent steps per second too."""
    floor = 1 / (1 / emulator + flops_per_step / flops_per_second)
    return Round(
        steps_per_second=steps_per_second,
        emulator_steps_per_second=emulator,
        flops_per_second=flops_per_second,
        floor_steps_per_second=floor,
        achieved=steps_per_second / floor,
    )


def _medians(rounds: Sequence[Round]) -> Round:
    return Round(**{name: median(getattr(each, name) for each in rounds) for name in Round.model_fields})


# --- output -----------------------------------------------------------------------------------------------------------


def table(now: Bench, then: Bench | None = None) -> Table:
    """All figures; if an earlier measurement is given, with its figures and the ratios beside them."""
    shown = Table("", box=None, show_header=then is not None, header_style="bold", pad_edge=False)
    shown.columns[0].no_wrap = True
    for heading in ("now", "") if then is None else ("now", "", "then", "now / then"):
        shown.add_column(heading, justify="right")
    earlier = {} if then is None else {name: value for name, value, _ in _figures(then)}
    remarks = _remarks(now)
    for name, value, form in _figures(now):
        cells = [name, number(value, form), remarks.get(name, "")]
        if then is not None:
            before = earlier.get(name)
            cells += [number(before, form), number(value / before if value and before else None, ".2f")]
        shown.add_row(*cells)
    return shown


def games_ended(bench: Bench) -> str:
    """How many games ended, in a sentence."""
    games = f"{bench.games:,} games ended" if bench.games else "No game ended, so resets are missing,"
    return f"{games} in the {bench.steps // 2:,} steps whose time is shared out above."


def differences(now: Bench, then: Bench) -> list[str]:
    """The circumstances that differ: configuration, machine, and versions of everything except a2c itself."""
    here, there = _circumstances(now), _circumstances(then)
    keys = [key for key in {**here, **there} if here.get(key) != there.get(key)]
    return [f"{key} ({here.get(key)} now, {there.get(key)} then)" for key in keys]


def _figures(bench: Bench) -> Iterator[tuple[str, float | None, str]]:
    """Name, value and format of each figure."""
    middle = bench.median
    yield "agent steps/s", middle.steps_per_second, ",.0f"
    yield "frames/s", bench.frames_per_second, ",.0f"
    yield CLOCKED, sum(bench.milliseconds.values()), ".4f"
    for row, milliseconds in bench.milliseconds.items():
        yield f"  {row}", milliseconds, ".4f"
    yield "floor, steps/s", middle.floor_steps_per_second, ",.0f"
    yield "  emulator alone, steps/s", middle.emulator_steps_per_second, ",.0f"
    yield "  network, MFLOP per step", bench.flops_per_step / 1e6, ",.2f"
    yield "  matrices, GFLOP/s", middle.flops_per_second / 1e9, ",.0f"
    yield ACHIEVED, middle.achieved, ".3f"
    yield "peak memory, MB", bench.peak_memory / 1e6, ",.0f"
    yield "memory now, MB", None if bench.memory is None else bench.memory / 1e6, ",.0f"


def _remarks(bench: Bench) -> dict[str, str]:
    """The remark beside a figure: its share, or its range."""
    total = sum(bench.milliseconds.values())
    shares = {f"  {row}": f"{100 * milliseconds / total:.1f} %" for row, milliseconds in bench.milliseconds.items()}
    achieved = [each.achieved for each in bench.rounds]
    return {**shares, CLOCKED: "100 %", ACHIEVED: f"{min(achieved):.3f} to {max(achieved):.3f}"}


def _circumstances(bench: Bench) -> dict[str, Any]:
    versions = {name: version for name, version in bench.versions.items() if name != "a2c"}
    return {**dotted(bench.config), **bench.machine, **versions}


# --- this process and this machine ------------------------------------------------------------------------------------


def _updates_per_chunk(config: Config, steps: int | None) -> int:
    """Updates of each of the two chunks of a round."""
    fewest = 2 * ROUNDS * config.env_steps_per_update
    if steps is not None and steps < fewest:
        raise UserError(
            f"--steps {steps:,} is too little to time; {ROUNDS} rounds of 2 updates of "
            f"{config.env_steps_per_update:,} steps take {fewest:,}."
        )
    return max(DEFAULT_STEPS if steps is None else steps, fewest) // fewest


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _memory() -> int | None:
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else None
