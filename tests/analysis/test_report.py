"""What a comparison says: no more than its data carries."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from a2c.analysis import report
from a2c.analysis.compare import Comparison
from a2c.analysis.convergence import Aggregate, ArmSummary, Contrast, Convergence, RunResult
from a2c.analysis.lock_step import Tried, Why
from a2c.analysis.numerics import Agreement, Difference, Distance, Where
from a2c.analysis.statistics import paired_difference, paired_ratio
from a2c.analysis.switches import SWITCHES

NEVER = math.inf


def convergence(
    first: list[float],
    second: list[float],
    *,
    identical: int = 0,
    threshold: float | None = 0.5,
    gradient_steps: tuple[float, float] = (0.5, 0.5),
) -> Convergence:
    """Two arms that need `first` and `second` agent steps, with so many gradient steps each; the second is faster."""
    learned = [[n * each for n in needed] for needed, each in zip((first, second), gradient_steps, strict=True)]
    seeds = tuple(range(len(first)))
    runs = [
        RunResult(arm, "Catch", seed, n, g, n / speed, speed, 0.6, (10, 20), (1.0, 2.0), (0.1, 0.6))
        for arm, needed, gradients, speed in (
            ("eager", first, learned[0], 100.0),
            ("graph fast", second, learned[1], 200.0),
        )
        for seed, n, g in zip(seeds, needed, gradients, strict=True)
    ]
    contrast = Contrast(
        arm="graph fast",
        baseline="eager",
        env="Catch",
        seeds=seeds,
        identical=identical,
        env_steps_to_threshold=None if threshold is None else paired_ratio(first, second),
        gradient_steps_to_threshold=None if threshold is None else paired_ratio(*learned),
        seconds_to_threshold=None if threshold is None else paired_ratio(first, [n / 2 for n in second]),
        steps_per_second=paired_ratio([100.0] * len(first), [200.0] * len(first)),
        final_return=paired_difference([0.6] * len(first), [0.6] * len(first)),
    )
    summary = ArmSummary("eager", "Catch", len(first), len(first), 10, 5, NEVER, 100, 0.6)
    return Convergence({"Catch": threshold}, 20, tuple(runs), (summary,), (contrast,), ())


def said(**parts: object) -> str:
    return " ".join(report.verdict(Comparison("title", Path(), **parts)))


def test_a_difference_is_claimed_only_where_the_interval_shows_it():
    base = [100.0, 120.0, 90.0, 110.0, 105.0, 95.0, 130.0, 101.0]
    noise = [0.8, 1.2, 0.9, 1.1, 1.05, 0.95, 1.3, 0.7]
    same = said(convergence=convergence(base, [b * n for b, n in zip(base, noise, strict=True)]))
    assert "needed 1.00x the agent steps of eager to a return of 0.5 (95 % 0." in same
    assert same.count("; no difference shown)") == 2  # of the agent steps, and of the return at the end
    slower = said(convergence=convergence(base, [1.5 * b + 0.01 * i for i, b in enumerate(base)]))
    shown = "(95 % 1.50 to 1.50, p 0.0078; difference shown) and 0.75x the time"
    assert f"needed 1.50x the agent steps of eager to a return of 0.5 {shown}" in slower


def test_gradient_steps_are_said_if_they_are_not_those_of_one_algorithm():
    needed = [100.0, 110.0, 90.0]
    assert "gradient" not in said(convergence=convergence(needed, [2 * n for n in needed]))
    text = said(convergence=convergence(needed, [2 * n for n in needed], gradient_steps=(0.5, 4.0)))
    few = "(3 seeds; a 95 % interval needs 6)"
    assert (
        f"needed 2.00x the agent steps of eager to a return of 0.5 {few}, 16.00x its gradient steps {few}, "
        f"and 1.00x the time {few}; ended"
    ) in text


def test_arms_that_do_not_promise_the_same_bits_are_told_of():
    found = convergence([100.0], [100.0])
    assert "promise" not in said(convergence=found)
    text = said(convergence=dataclasses.replace(found, inexact=("graph fast",)))
    assert text.endswith(
        "Convergence: graph fast: this algorithm does not promise the same bits, so the same command may give other "
        "numbers the next time."
    )


def test_too_few_seeds_get_no_interval_and_no_claim():
    text = said(convergence=convergence([100.0, 110.0, 90.0], [200.0, 220.0, 180.0]))
    assert "needed 2.00x the agent steps of eager to a return of 0.5 (3 seeds; a 95 % interval needs 6)" in text
    assert "shown" not in text


def test_identical_runs_are_called_identical_only_if_all_are():
    times = [100.0] * 6
    assert "graph fast: identical to eager bit for bit in all 6 seeds, at 2.00x the steps a second (95 % 2.00" in said(
        convergence=convergence(times, times, identical=6)
    )
    some = said(convergence=convergence(times, times, identical=5))
    assert "5 of 6 seeds are identical bit for bit" in some
    assert "identical to eager" not in some


def test_runs_without_a_partner_of_their_seed_are_counted():
    found = convergence([100.0] * 3, [200.0] * 3)
    assert "partner" not in said(convergence=found)
    (contrast,) = found.contrasts
    fewer = dataclasses.replace(found, contrasts=(dataclasses.replace(contrast, seeds=(0, 1)),), runs=found.runs[:5])
    assert "; left out, without a partner of its seed: 1 run of eager." in said(convergence=fewer)


def test_a_threshold_never_reached_is_one_clear_sentence():
    text = said(convergence=convergence([NEVER] * 6, [NEVER] * 6))
    assert "no run of either arm reached a return of 0.5 in 20 steps" in text
    assert "needed" not in text


def test_censored_runs_are_counted_in_the_sentence():
    text = said(convergence=convergence([100.0, 110.0, 90.0, 95.0, 105.0, 99.0], [NEVER] * 5 + [100.0]))
    assert "needed ∞x the agent steps" in text
    assert "never reached: 0 runs of eager, 5 of graph fast, of 6 each; counted, not dropped" in text


def test_without_a_threshold_only_the_end_is_compared():
    found = convergence([1.0] * 6, [1.0] * 6, threshold=None)
    (row,) = report.tables(Comparison("title", Path(), convergence=found))[0].rows
    assert row == ("Catch", "eager", "6", "-", "-", "-", "-", "100", "0.60")
    text = said(convergence=found)
    assert "no threshold is known" in text
    assert "needed" not in text
    assert "ended +0.00 from its return" in text


def where(**changes: object) -> Where:
    stages = (Difference("logits", 12, 0, 0, 0.0), Difference("gradient conv_1/kernel", 1234, 56, 7, 1e-9))
    values = {"update": 2, "updates": 2, "first": "gradient conv_1/kernel", "stages": stages}
    values |= {"differing_variables": ("weight conv_1/kernel",), "changed_by_observing": ()}
    return Where(**(values | changes))


def test_the_first_stage_is_named_with_its_size():
    text = said(where={"fast": where()})
    assert "graph fast parts from eager in update 2, first at gradient conv_1/kernel: 56 of 1,234 elements" in text
    assert "by up to 7 ULP (1.0e-09)." in text
    assert "Reading" not in text


def test_the_reader_is_warned_where_looking_changed_the_result():
    text = said(where={"fast": where(first=None, changed_by_observing=("weight conv_1/kernel",))})
    assert "only while nothing is read (weight conv_1/kernel differs then)" in text
    assert "Reading the stages changed what the graph computes (1 variables" in text


def test_equality_is_said_with_the_number_of_updates():
    text = said(where={"exact": where(update=None, updates=50, first=None, differing_variables=())})
    assert text == "Where: graph exact and eager gave the same bits in all 50 updates."


@pytest.mark.parametrize(
    ("smallest", "words"),
    [
        (None, "not even all of these switches together"),
        ((), "agree as they are in 5 updates; nothing has to be switched off"),
        (
            ("constant_folding", "remapping"),
            "agree in 5 updates with constant_folding off and remapping off; no single one does it.",
        ),
        (("oneDNN",), "agree in 5 updates with remapping off, or with oneDNN off."),
    ],
)
def test_the_reason_is_named(smallest, words):
    cures = {("constant_folding", "remapping"): [("constant_folding", "remapping")]}
    complete = cures.get(smallest, [("remapping",), ("oneDNN",)] if smallest else [])
    trials = [Tried((), Agreement(5, 10, 9, 8)), *(Tried(off, Agreement(5, 10, 10, 10)) for off in complete)]
    assert words in said(why=Why(tuple(trials), smallest))


def test_the_reason_holds_for_as_many_updates_as_were_compared():
    assert "agree as they are in 2 updates" in said(why=Why((Tried((), Agreement(2, 10, 10, 10)),), ()))


def test_growth_says_zero_only_for_zero():
    def update(relative: float) -> dict[str, Distance]:
        return {"weights": Distance(relative, relative), "velocity": Distance(0.0, 0.0)}

    assert "stay equal over 2 updates" in said(growth={"exact": [update(0.0), update(0.0)]})
    text = said(growth={"fast": [update(1e-9), update(2e-7)]})
    assert "after 2 updates" in text
    assert "weights 2.0e-07" in text
    assert "weights after the first update: 1.0e-09" in text


def test_files_hold_everything_and_no_invalid_json(tmp_path):
    trials = (
        Tried((), Agreement(5, 10, 9, 8)),
        Tried(SWITCHES, Agreement(5, 10, 10, 10)),
        Tried(SWITCHES[1:], Agreement(5, 10, 9, 9)),
    )
    comparison = Comparison(
        "title",
        tmp_path,
        where={"fast": where()},
        why=Why(trials, ("remapping",)),
        growth={
            "fast": [{"weights": Distance(1e-9, 1e-9)}, {"weights": Distance(0.0, 0.0)}],
            "exact": [{"weights": Distance(0.0, 0.0)}] * 2,
        },
        convergence=convergence([NEVER] * 3, [100.0] * 3),
    )
    files = report.write_report(comparison, "a2c compare --eager")
    values = json.loads((tmp_path / "results.json").read_text(), parse_constant=lambda text: pytest.fail(text))
    assert values["command"] == "a2c compare --eager"
    run, summary = values["convergence"]["runs"][0], values["convergence"]["summaries"][0]
    assert run["env_steps_to_threshold"] == run["gradient_steps_to_threshold"] == "inf"
    assert (summary["env_steps_to_threshold"], summary["gradient_steps_to_threshold"]) == (10, 5)
    assert values["verdict"] == report.verdict(comparison)
    text = (tmp_path / "report.md").read_text()
    for words in (
        "`a2c compare --eager`",
        "| nothing (TensorFlow's defaults) | 9 of 10 | 8 of 10 |",
        "| all of these |",
        "| reached | agent steps to it | gradient steps to it | seconds to it |",
        "| 3 of 3 | 10 | 5 | never |",
        "![growth](growth.png)",
    ):
        assert words in text
    assert "all of these but: arithmetic_optimization" in text
    assert {file.name for file in files} == {"results.json", "report.md", "growth.png", "curves.png"}
    assert all(file.stat().st_size > 1000 for file in tmp_path.glob("*.png"))


def test_where_nothing_is_known_nothing_is_claimed():
    assert report._ratio(paired_ratio([NEVER] * 6, [NEVER] * 6), "the time") == "an unknown multiple of the time"


@pytest.mark.parametrize(
    ("seeds", "interval", "words"),
    [
        (10, (0.6, 0.9), "with probability 0.80 (95 % 0.600 to 0.900; 0.5 is no difference)"),
        (3, (0.6, 0.9), "with probability 0.80 (3 seeds; a 95 % interval needs 6; 0.5 is no difference)"),
        (1, None, "score of 0.500 (1 seed; a 95 % interval needs 6)"),
    ],
)
def test_over_games_an_interval_needs_seeds_too(seeds, interval, words):
    text = report._say_aggregate(Aggregate("quick", seeds, 0.5, interval, 0.8, interval))
    assert words in text


def test_games_without_published_scores_are_not_averaged_and_that_is_said():
    found = convergence([1.0] * 6, [1.0] * 6, threshold=None)
    found = dataclasses.replace(found, thresholds={"Catch": None, "Pong": None})
    assert "Catch has no published random and human score, so the games are not averaged" in said(convergence=found)
