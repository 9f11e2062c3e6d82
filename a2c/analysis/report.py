"""The results of a comparison in words, tables and pictures: results.json, report.md and PNGs in its folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from a2c.analysis import switches as sw
from a2c.analysis.compare import Comparison
from a2c.analysis.convergence import Aggregate, ArmSummary, Contrast, Convergence, RunResult, is_scored
from a2c.analysis.lock_step import Tried, Why
from a2c.analysis.numerics import Agreement, Distance, Where
from a2c.analysis.pictures import draw
from a2c.analysis.statistics import MIN_SEEDS, PairedComparison
from a2c.analysis.studies.question import QuestionResult
from a2c.config import printable_lines
from a2c.execution.machine import versions
from a2c.messages import counted, number
from a2c.run.files import write_atomically

SHOWN_STAGES = 12  # of the differing ones, in the table


class Table(NamedTuple):
    """Rows of text, for the terminal and for Markdown."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def write_report(comparison: Comparison, command: str) -> list[Path]:
    """Write results.json, report.md and the pictures into the comparison's folder; returns the files."""
    folder = comparison.folder
    values = {
        "title": comparison.title,
        "command": command,
        "versions": versions(),
        "verdict": verdict(comparison),
        **{name: value for name, value in asdict(comparison).items() if name not in ("title", "folder")},
    }
    write_atomically(folder / "results.json", json.dumps(_plain(values), indent=1) + "\n")
    pictures = draw(comparison)
    write_atomically(folder / "report.md", printable_lines(_markdown(comparison, command, pictures)))
    return [folder / "report.md", folder / "results.json", *pictures]


# --- words ------------------------------------------------------------------------------------------------------------


def verdict(comparison: Comparison) -> list[str]:
    """One sentence for each result, claiming no more than the data supports."""
    sentences: list[str] = []
    for numerics, where in (comparison.where or {}).items():
        sentences.append(f"Where: {_say_where(numerics, where)}")
    if comparison.why is not None:
        sentences.append(f"Why: {_say_why(comparison.why)}")
        defaults = comparison.why.trials[0].outcome
        if isinstance(defaults, QuestionResult):
            sentences.append(f"Growth: {_say_question(defaults)}")
    for numerics, distances in (comparison.growth or {}).items():
        sentences.append(f"Growth: {_say_growth(numerics, distances)}")
    if comparison.convergence is not None:
        sentences += [f"Convergence: {text}" for text in _say_convergence(comparison.convergence)]
    if comparison.bandit is not None:
        sentences += [f"Loop: {text}" for text in comparison.bandit.sentences()]
    return sentences


def _say_where(numerics: str, where: Where) -> str:
    changed = ""
    if where.changed_by_observing:
        changed = (
            f" Reading the stages changed what the graph computes ({len(where.changed_by_observing)} variables, such "
            f"as {where.changed_by_observing[0]}): what is read cannot be rewritten away, so take the stage with care."
        )
    if where.update is None:
        return f"graph {numerics} and eager gave the same bits in all {where.updates} updates.{changed}"
    start = f"graph {numerics} parts from eager in update {where.update}"
    if where.first is None:
        return f"{start}, but only while nothing is read ({where.differing_variables[0]} differs then).{changed}"
    stage = next(stage for stage in where.stages if stage.stage == where.first)
    return (
        f"{start}, first at {where.first}: {stage.differing:,} of {stage.elements:,} elements, by up to "
        f"{stage.max_ulps:,} ULP ({stage.max_abs:.1e}).{changed}"
    )


def _say_why(why: Why) -> str:
    if why.smallest is None:
        return "not even all of these switches together make graph and eager agree."
    within = f" in {why.trials[0].outcome.updates} updates"
    if not why.smallest:
        return f"graph and eager agree as they are{within}; nothing has to be switched off."
    sets = [trial.off for trial in why.trials if trial.outcome.complete and len(trial.off) == len(why.smallest)]
    smaller = {1: "", 2: "; no single one does it"}.get(len(why.smallest), "; no smaller set that was tried does it")
    return f"graph and eager agree{within} with {', or with '.join(_list(off) for off in sets)}{smaller}."


def _say_question(defaults: QuestionResult) -> str:
    groups = {
        "weights": defaults.weight_distances,
        "first moments": defaults.first_moment_distances,
        "second moments": defaults.second_moment_distances,
    }
    grown = ", ".join(f"{name} {distances[0]:.1e} to {distances[-1]:.1e}" for name, distances in groups.items())
    last = defaults.updates
    return f"with TensorFlow's defaults the largest difference goes from the first update to update {last}: {grown}."


def _say_growth(numerics: str, distances: list[dict[str, Distance]]) -> str:
    last = distances[-1]
    if not any(group.max_abs for update in distances for group in update.values()):
        return f"graph {numerics} and eager stay equal over {len(distances)} updates: distance 0 throughout."
    groups = ", ".join(f"{name} {group.relative:.1e}" for name, group in last.items())
    first = f"{distances[0]['weights'].relative:.1e}"
    return (
        f"after {len(distances)} updates on the same data graph {numerics} lies from eager, relative to its length: "
        f"{groups} (weights after the first update: {first})."
    )


def _say_convergence(found: Convergence) -> Iterator[str]:
    for contrast in found.contrasts:
        yield _say_contrast(contrast, found)
    for aggregate in found.aggregates:
        yield _say_aggregate(aggregate)
    unscored = [env for env in found.thresholds if not is_scored(env)]
    if len(found.thresholds) > 1 and unscored:
        yield f"{unscored[0]} has no published random and human score, so the games are not averaged."
    if found.inexact:
        yield (
            f"{', '.join(found.inexact)}: this algorithm does not promise the same bits, so the same command may give "
            "other numbers the next time."
        )


def _say_contrast(contrast: Contrast, found: Convergence) -> str:
    n, threshold = len(contrast.seeds), found.thresholds[contrast.env]
    start = f"{contrast.env}, {contrast.arm}:"
    speed = _ratio(contrast.steps_per_second, "the steps a second")
    if contrast.identical == n:
        seeds = "its one seed" if n == 1 else f"all {n} seeds"
        return f"{start} identical to {contrast.baseline} bit for bit in {seeds}, at {speed}."
    parts = []
    steps, seconds = contrast.env_steps_to_threshold, contrast.seconds_to_threshold
    if steps is None or seconds is None:
        parts.append("no threshold is known for this environment (--threshold sets one)")
    elif steps.censored_first == steps.censored_second == n:
        parts.append(
            f"no run of either arm reached a return of {threshold:g} in {found.budget:,} steps, so nothing can be said "
            f"of the way there; give a lower --threshold or more --steps"
        )
    else:
        needed = _ratio(steps, f"the agent steps of {contrast.baseline} to a return of {threshold:g}")
        gradient_steps = _gradient_steps(contrast, found.runs)
        needed += f", {gradient_steps}, and" if gradient_steps else " and"
        parts.append(f"needed {needed} {_ratio(seconds, 'the time')}{_censored(contrast, steps)}")
    parts.append(f"ended {_difference(contrast.final_return)}")
    parts.append(f"ran at {speed}")
    parts += _unpaired(contrast, found.runs)
    some = f"; {contrast.identical} of {n} seeds are identical bit for bit" if contrast.identical else ""
    return f"{start} {'; '.join(parts)}{some}."


def _unpaired(contrast: Contrast, runs: Sequence[RunResult]) -> Iterator[str]:
    """What is left out of the pairs, though not out of the table."""
    left = [run.arm for run in runs if run.env == contrast.env and run.seed not in contrast.seeds]
    for arm in (contrast.baseline, contrast.arm):
        if arm in left:
            yield f"left out, without a partner of its seed: {counted(left.count(arm), 'run')} of {arm}"


def _gradient_steps(contrast: Contrast, runs: Sequence[RunResult]) -> str:
    """The ratio of gradient steps; empty if each pair has the same ratio as in agent steps, as within one algorithm."""
    of = {(run.arm, run.seed): run for run in runs if run.env == contrast.env}
    pairs = [(of[contrast.baseline, seed], of[contrast.arm, seed]) for seed in contrast.seeds]
    same = all(
        a.gradient_steps_to_threshold * b.env_steps_to_threshold
        == b.gradient_steps_to_threshold * a.env_steps_to_threshold
        for a, b in pairs
    )
    found = contrast.gradient_steps_to_threshold
    return "" if same or found is None else _ratio(found, "its gradient steps")


def _censored(contrast: Contrast, steps: PairedComparison) -> str:
    if not steps.censored_first + steps.censored_second:
        return ""
    return (
        f" (never reached: {steps.censored_first} runs of {contrast.baseline}, {steps.censored_second} of "
        f"{contrast.arm}, of {steps.pairs} each; counted, not dropped)"
    )


def _say_aggregate(aggregate: Aggregate) -> str:
    text = (
        f"over all games {aggregate.arm} has an interquartile mean human-normalised score of "
        f"{aggregate.interquartile_mean:.3f} ({_between(aggregate.interval, aggregate.seeds)})"
    )
    if aggregate.improvement is None:
        return f"{text}."
    around = _between(aggregate.improvement_interval, aggregate.seeds)
    return (
        f"{text}; it beats the first arm with probability {aggregate.improvement:.2f} ({around}; 0.5 is no difference)."
    )


def _between(interval: tuple[float, float] | None, seeds: int) -> str:
    if interval is None or seeds < MIN_SEEDS:
        return f"{counted(seeds, 'seed')}; a 95 % interval needs {MIN_SEEDS}"
    return f"95 % {interval[0]:.3f} to {interval[1]:.3f}"


def _ratio(found: PairedComparison, of: str) -> str:
    if found.estimate is None:
        return f"an unknown multiple of {of}"
    return f"{_times(found.estimate)}x {of} ({_interval(found, _times)})"


def _times(ratio: float) -> str:
    """A ratio as text: infinite if only the other arm reached the threshold, 0 if only this one did."""
    return "∞" if math.isinf(ratio) else f"{ratio:.2f}"


def _difference(found: PairedComparison) -> str:
    assert found.estimate is not None  # every difference has one
    return f"{found.estimate:+.2f} from its return ({_interval(found, '{:+.2f}'.format)})"


def _interval(found: PairedComparison, form: Callable[[float], str]) -> str:
    if found.low is None or found.high is None or found.p_value is None:
        return f"{counted(found.pairs, 'seed')}; a 95 % interval needs {MIN_SEEDS}"
    shown = "difference shown" if found.shown else "no difference shown"
    return f"95 % {form(found.low)} to {form(found.high)}, p {found.p_value:.2g}; {shown}"


def _list(off: Sequence[str]) -> str:
    names = [sw.label(switch) for switch in off]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(comparison: Comparison) -> list[Table]:
    """The tables of all results that have one."""
    found = [_where_table(numerics, where) for numerics, where in (comparison.where or {}).items() if where.update]
    if comparison.why is not None:
        found.append(_why_table(comparison.why))
    if comparison.convergence is not None:
        found.append(_arms_table(comparison.convergence))
    if comparison.bandit is not None:
        found.append(Table("The bandit's three losses", *comparison.bandit.table()))
    return found


def _where_table(numerics: str, where: Where) -> Table:
    differing = [stage for stage in where.stages if stage.differing]
    rows = [
        (s.stage, f"{s.differing:,} of {s.elements:,}", f"{s.max_ulps:,}", f"{s.max_abs:.1e}")
        for s in differing[:SHOWN_STAGES]
    ]
    more = f", the first {SHOWN_STAGES} of them below" if len(differing) > SHOWN_STAGES else ""
    return Table(
        f"Where graph {numerics} parts from eager: update {where.update}, "
        f"{len(differing)} of {len(where.stages)} stages differ{more}",
        ("stage", "elements that differ", "largest ULP", "largest difference"),
        rows,
    )


def _why_table(why: Why) -> Table:
    return Table(
        "Which switches bring graph and eager together",
        ("switched off", *_outcome_headings(why.trials[0])),
        [(_switches(trial.off), *_outcome(trial)) for trial in why.trials],
    )


def _outcome_headings(trial: Tried) -> tuple[str, ...]:
    if isinstance(trial.outcome, Agreement):
        return ("variables equal after 1 update", f"after {trial.outcome.updates}")
    return ("advantages equal", "optimizer variables equal")


def _outcome(trial: Tried) -> tuple[str, ...]:
    found = trial.outcome
    if isinstance(found, Agreement):
        return f"{found.equal_after_one} of {found.variables}", f"{found.equal} of {found.variables}"
    advantages = "yes" if found.advantages_equal else f"no ({found.advantages_distance:.1e})"
    return advantages, f"{found.optimizer_variables_equal} of {found.optimizer_variables}"


def _switches(off: tuple[str, ...]) -> str:
    if not off:
        return "nothing (TensorFlow's defaults)"
    missing = [switch for switch in sw.SWITCHES if switch not in off]
    if not missing:
        return "all of these"
    if len(missing) == 1:
        return f"all of these but: {sw.label(missing[0])}"
    return ", ".join(sw.label(switch) for switch in off)


def _arms_table(found: Convergence) -> Table:
    return Table(
        f"Medians over the seeds, in {found.budget:,} steps",
        (
            *("game", "arm", "runs", "reached", "agent steps to it", "gradient steps to it", "seconds to it"),
            *("steps/s", "final return"),
        ),
        [
            (
                *(s.env, s.arm, str(s.runs), *_way_to_threshold(s, found.thresholds[s.env])),
                *(f"{s.steps_per_second:,.0f}", f"{s.final_return:.2f}"),
            )
            for s in found.summaries
        ],
    )


def _way_to_threshold(summary: ArmSummary, threshold: float | None) -> Sequence[str]:
    """How many runs reached it, and the agent steps, gradient steps and seconds to it; dashes if there is none."""
    if threshold is None:
        return ("-",) * 4
    costs = (summary.env_steps_to_threshold, summary.gradient_steps_to_threshold, summary.seconds_to_threshold)
    return f"{summary.reached} of {summary.runs}", *(number(cost, ",.0f", missing="never") for cost in costs)


# --- files ------------------------------------------------------------------------------------------------------------


def _markdown(comparison: Comparison, command: str, pictures: Sequence[Path]) -> str:
    lines = [f"# Comparison: {comparison.title}", "", f"`{command}`", ""]
    lines += [f"- {sentence}" for sentence in verdict(comparison)]
    for table in tables(comparison):
        lines += ["", f"## {table.title}", ""]
        lines += ["| " + " | ".join(table.headings) + " |", "|" + "---|" * len(table.headings)]
        lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    for picture in pictures:
        lines += ["", f"![{picture.stem}]({picture.name})"]
    made_with = ", ".join(f"{name} {version}" for name, version in versions().items())
    return "\n".join([*lines, "", f"Made with {made_with}.", ""])


def _plain(value: Any) -> Any:
    """Values for JSON, which has no infinity: `inf` of a censored run becomes the text "inf"."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (float, np.floating)) and not math.isfinite(value):
        return str(float(value))
    return value.item() if isinstance(value, np.generic) else value
