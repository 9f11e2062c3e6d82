"""Statistics against hand calculations, brute force, and thousands of simulated comparisons with known answers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from a2c.analysis.statistics import (
    PairedComparison,
    _log_ratios,
    _median_interval,
    _sign_flip_p,
    interquartile_mean,
    paired_difference,
    paired_ratio,
    probability_of_improvement,
    stratified_interval,
)

INF = math.inf
TRUE_RATIO = 1.3
SEED_COUNTS = (6, 7, 8, 10, 20)
# the sign flips of 20 pairs take their time
SIMULATIONS = [*((4_000, n) for n in SEED_COUNTS[:-1]), pytest.param(1_000, 20, marks=pytest.mark.integration)]


def costs(shape: str, ratio: float, rng: np.random.Generator, *size: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulated costs [comparisons, pairs] of both ways, whose median ratio is `ratio` exactly."""
    difficulty = rng.normal(0.0, 0.5, size)  # of a seed, the same for both ways
    noise = {
        "log-normal": lambda: rng.normal(0.0, 0.4, size),
        "skewed": lambda: rng.exponential(1.0, size) - math.log(2.0),  # median 0, mean 0.31
        "heavy tails": lambda: 0.3 * rng.standard_t(2, size),
        "censored": lambda: rng.normal(0.0, 0.8, size),
    }[shape]()
    if shape != "censored":
        first = np.exp(difficulty)
        return first, first * ratio * np.exp(noise)
    # the budget stops one run of a pair at most, and that one on its own side of the median ratio, which stays known
    return within_budget(np.exp(-noise / 2)), within_budget(ratio * np.exp(noise / 2))


def equal_costs(shape: str, rng: np.random.Generator, *size: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulated costs [comparisons, pairs] of two ways that are one."""
    noise = {
        "log-normal": lambda: rng.normal(0.0, 0.4, (2, *size)),
        "skewed": lambda: rng.exponential(1.0, (2, *size)),
        "heavy tails": lambda: 0.3 * rng.standard_t(2, (2, *size)),
        "censored": lambda: rng.normal(0.0, 0.6, (2, *size)),
    }[shape]()
    first, second = np.exp(rng.normal(0.0, 0.5, size) + noise)
    return (within_budget(first), within_budget(second)) if shape == "censored" else (first, second)


def within_budget(values: np.ndarray, budget: float = 1.7) -> np.ndarray:
    return np.where(values > budget, INF, values)


def small_p_values(effects: np.ndarray) -> np.ndarray:
    """p [comparisons]; 1 where a normal approximation is far from 0.05, since 20 pairs have a million sign flips."""
    ranks = stats.rankdata(np.abs(effects), axis=-1)
    z = (np.sign(effects) * ranks).sum(-1) / np.sqrt((ranks**2).sum(-1))
    p_values, near = np.ones(len(effects)), 2 * stats.norm.sf(np.abs(z)) < 0.08
    p_values[near] = _sign_flip_p(effects[near], seed=0)
    return p_values


def shown(effects: np.ndarray, p_values: np.ndarray) -> np.ndarray:
    n = effects.shape[-1]
    bounds = zip(*_median_interval(effects), p_values, strict=True)
    return np.array([PairedComparison(0.0, n, None, low, high, p, 0, 0).shown for low, high, p in bounds])


@pytest.mark.parametrize("n", SEED_COUNTS)
@pytest.mark.parametrize("shape", ["log-normal", "skewed", "heavy tails", "censored"])
def test_the_interval_covers_the_true_ratio_95_times_in_100(shape: str, n: int) -> None:
    for seed in range(3):
        first, second = costs(shape, TRUE_RATIO, np.random.default_rng(seed), 4_000, n)
        low, high = _median_interval(_log_ratios(first, second))
        covered = np.mean((low <= math.log(TRUE_RATIO)) & (math.log(TRUE_RATIO) <= high))
        assert 0.92 <= covered <= 0.98
        misses = np.mean(low > math.log(TRUE_RATIO)), np.mean(high < math.log(TRUE_RATIO))
        assert max(misses) <= 0.045  # on both sides alike


def test_the_percentile_bootstrap_of_the_median_would_not_cover_it() -> None:
    """Why the interval is another one."""
    first, second = costs("log-normal", TRUE_RATIO, np.random.default_rng(0), 2_000, 7)
    ordered = np.sort(_log_ratios(first, second), axis=-1)
    medians = ordered[:, np.median(np.random.default_rng(0).integers(7, size=(999, 7)), axis=-1).astype(int)]
    low, high = np.quantile(medians, [0.025, 0.975], axis=-1)
    assert 0.85 < np.mean((low <= math.log(TRUE_RATIO)) & (math.log(TRUE_RATIO) <= high)) < 0.9


def test_a_gap_around_the_median_is_a_known_limit() -> None:
    """Two clusters, and the true median between them: the coverage falls to that of the inner of the two intervals."""
    rng = np.random.default_rng(0)
    effects = rng.choice([-1.0, 1.0], (4_000, 7)) + rng.normal(0.0, 0.1, (4_000, 7))
    low, high = _median_interval(effects)
    assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(1 - 2 * stats.binom.cdf(1, 7, 0.5), abs=0.02)


def test_the_simulated_budget_stops_runs_of_both_ways() -> None:
    first, second = costs("censored", TRUE_RATIO, np.random.default_rng(0), 1_000, 10)
    assert np.isinf(first).mean() > 0.05
    assert np.isinf(second).mean() > 0.2
    assert not (np.isinf(first) & np.isinf(second)).any()
    first, second = equal_costs("censored", np.random.default_rng(0), 1_000, 10)
    assert 0.05 < (np.isinf(first) & np.isinf(second)).mean() < 0.2 < np.isinf(second).mean()


@pytest.mark.parametrize(("comparisons", "n"), SIMULATIONS)
def test_equal_ways_are_told_apart_at_most_6_times_in_100(comparisons: int, n: int) -> None:
    rng = np.random.default_rng(0)
    small = []
    for shape in ("log-normal", "skewed", "heavy tails", "censored"):
        effects = _log_ratios(*equal_costs(shape, rng, comparisons, n))
        p_values = small_p_values(effects)
        assert np.mean(shown(effects, p_values)) <= 0.06
        small.append(np.mean(p_values <= 0.05))
    assert np.mean(small) <= 0.06


@pytest.mark.parametrize(("comparisons", "n"), SIMULATIONS)
def test_skewed_ratios_of_median_1_are_shown_at_most_6_times_in_100(comparisons: int, n: int) -> None:
    """Their p alone is below 0.05 too often, since signed ranks see a lack of symmetry; the interval does not."""
    effects = _log_ratios(*costs("skewed", 1.0, np.random.default_rng(0), comparisons, n))
    assert np.mean(shown(effects, small_p_values(effects))) <= 0.06


@pytest.mark.parametrize("n", [6, 10])
def test_a_ratio_of_1_3_in_little_noise_is_shown(n: int) -> None:
    rng = np.random.default_rng(0)
    first = np.exp(rng.normal(0.0, 0.5, (100, n)))
    second = first * TRUE_RATIO * np.exp(rng.normal(0.0, 0.1, (100, n)))
    assert np.mean([paired_ratio(*pairs).shown for pairs in zip(first, second, strict=True)]) > 0.9
    assert np.mean([paired_difference(*pairs).shown for pairs in zip(first, second, strict=True)]) > 0.9


@pytest.mark.parametrize("n", [6, 10, 20])
def test_a_comparison_is_what_the_simulations_measured(n: int) -> None:
    first, second = costs("censored", TRUE_RATIO, np.random.default_rng(1), 5, n)
    effects = _log_ratios(first, second)
    low, high = _median_interval(effects)
    p_values = _sign_flip_p(effects, seed=0)
    for row in range(5):
        comparison = paired_ratio(first[row], second[row])
        assert (comparison.low, comparison.high) == pytest.approx((np.exp(low[row]), np.exp(high[row])))
        assert comparison.p_value == pytest.approx(p_values[row])
        assert comparison.estimate == pytest.approx(np.exp(np.median(effects[row])))
        assert (comparison.censored_first, comparison.censored_second, comparison.pairs) == (
            np.isinf(first[row]).sum(),
            np.isinf(second[row]).sum(),
            n,
        )


def differences(*effects: float) -> PairedComparison:
    return paired_difference(np.zeros(len(effects)), effects)


def ratios(*effects: float) -> PairedComparison:
    """Of pairs with these second / first; inf and 0 are a run that never reached, nan is two."""
    first = [INF if ratio == 0 or math.isnan(ratio) else 10.0 for ratio in effects]
    second = [INF if ratio == INF or math.isnan(ratio) else 10.0 * (ratio or 1.0) for ratio in effects]
    return paired_ratio(first, second)


@pytest.mark.parametrize(
    ("effects", "flips_as_extreme", "flips"),
    [
        ((1, 2, 3, 4, 5, 6), 2, 64),  # all of one sign
        ((-1, 2, 3, 4, 5, 6), 4, 64),  # the negative ranks add up to at most 1: {} and {1}, and their mirror images
        ((1, 2, 3, 4, 5, -6), 28, 64),  # to at most 6: 1 + 1 + 1 + 2 + 2 + 3 + 4 sets
        ((1, 2, 3, 4, 5, -600), 28, 64),  # ranks alone count
        ((-7, -7, -7, 7, -7, -7, -7), 16, 128),  # equal ranks: at most one of seven the other way
        ((0, 0, 1, 1, 1, 1), 8, 64),  # flipping a zero changes nothing: 2 / 2**4
        ((1, -1, 2, -2, 3, -3), 64, 64),
    ],
)
def test_p_values_by_hand(effects: tuple[float, ...], flips_as_extreme: int, flips: int) -> None:
    assert differences(*effects).p_value == pytest.approx(flips_as_extreme / flips)


def test_an_infinite_ratio_has_the_largest_rank_and_no_more() -> None:
    assert ratios(1.1, 1.2, 1.3, 1.4, 1.5, 0).p_value == pytest.approx(28 / 64)
    assert ratios(1.1, 1.2, 1.3, 1.4, 1.5, INF).p_value == pytest.approx(2 / 64)


def test_p_values_by_enumeration_of_all_signs() -> None:
    effects = np.random.default_rng(0).integers(-3, 6, (20, 8)).astype(float)  # many ties, some zeros
    for row in effects:
        ranks = np.sign(row) * stats.rankdata(np.abs(row))
        sums = np.array([np.dot(signs, ranks) for signs in itertools.product((-1, 1), repeat=8)])
        assert differences(*row).p_value == pytest.approx(np.mean(np.abs(sums) >= abs(ranks.sum())))


def test_drawn_sign_flips_are_near_the_exact_p_and_the_same_again() -> None:
    effects = np.random.default_rng(2).normal(0.4, 1.0, 20)
    wanted = stats.wilcoxon(effects, method="exact").pvalue
    assert 0.02 < wanted < 0.2  # where it matters
    comparison = differences(*effects)
    assert comparison.p_value == pytest.approx(wanted, abs=0.012)  # three standard errors of 9,999 draws
    assert comparison == differences(*effects)
    assert comparison != paired_difference(np.zeros(20), effects, seed=1)


def test_equal_ratios_tie_whatever_their_size() -> None:
    """log 6 - log 2 and log 3 - log 1 differ in the last bit, and then the ranks would."""
    comparison = paired_ratio([1, 2, 10, 7, 49, 33], [3, 6, 30, 21, 147, 11])
    assert len({math.log(b) - math.log(a) for a, b in [(1, 3), (2, 6), (10, 30), (7, 21), (49, 147)]}) > 1
    assert comparison.p_value == pytest.approx(14 / 64)  # at most one of six equal ranks the other way: 2 * (1 + 6)


def test_the_interval_of_six_pairs_by_hand() -> None:
    """[x1, x6] covers 1 - 2/64, [x2, x5] 1 - 14/64: a tenth of the way in coverage is 0.5 / 1.4 of it in x."""
    comparison = differences(60, 10, 30, 20, 50, 40)
    assert (comparison.low, comparison.high) == pytest.approx((10 + 10 * 0.5 / 1.4, 60 - 10 * 0.5 / 1.4))
    assert comparison.estimate == 35
    assert comparison.no_difference == 0


@pytest.mark.parametrize("n", [5, 6, 9, 20])
def test_swapping_the_arms_inverts_the_ratio_and_negates_the_difference(n: int) -> None:
    rng = np.random.default_rng(n)
    first, second = np.exp(rng.normal(0.0, 0.5, (2, n)))
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert there.estimate == -back.estimate
    assert n < 6 or (there.low, there.high, there.p_value) == (-back.high, -back.low, back.p_value)
    first[0] = second[2] = second[3] = INF
    there, back = paired_ratio(first, second), paired_ratio(second, first)
    assert there.estimate == pytest.approx(1 / back.estimate)
    assert (there.censored_first, there.censored_second) == (back.censored_second, back.censored_first) == (1, 2)
    if n >= 6:
        assert (there.low, there.p_value) == (pytest.approx(1 / back.high), back.p_value)
        assert there.high == pytest.approx(1 / back.low if back.low else INF)


@pytest.mark.parametrize(
    ("effects", "estimate", "low", "high", "is_shown"),
    [
        ((2.0, INF, INF, INF, INF, INF), INF, 2.0, INF, True),  # no share of the way from 2 to inf is known
        ((0.5, 0, 0, 0, 0, 0), 0, 0, 0.5, True),
        ((INF, INF, INF, 0, 0, 0), 1, 0, INF, False),
        ((1.5, 1.6, 1.7, INF, INF, INF), INF, None, INF, True),
        ((INF,) * 6, INF, INF, INF, True),
        ((0,) * 8, 0, 0, 0, True),
        ((1.0,) * 6, 1, 1, 1, False),
    ],
)
def test_runs_that_never_reached(effects, estimate, low, high, is_shown) -> None:
    comparison = ratios(*effects)
    assert (comparison.estimate, comparison.high, comparison.shown) == pytest.approx((estimate, high, is_shown))
    assert comparison.low == pytest.approx(1.5 * (1.6 / 1.5) ** (0.5 / 1.4) if low is None else low)
    assert (comparison.censored_first, comparison.censored_second) == (effects.count(0), effects.count(INF))


def test_no_difference_at_all_has_p_1() -> None:
    assert ratios(*[1.0] * 7) == PairedComparison(1.0, 7, 1.0, 1.0, 1.0, 1.0, 0, 0)
    assert differences(*[0.0] * 20) == PairedComparison(0.0, 20, 0.0, 0.0, 0.0, 1.0, 0, 0)


def test_pairs_of_which_neither_reached_make_a_difference_harder_to_show() -> None:
    assert ratios(*[2.0] * 6).shown
    comparison = ratios(*[2.0] * 6, *[math.nan] * 6)
    assert (comparison.pairs, comparison.censored_first, comparison.censored_second) == (12, 6, 6)
    assert comparison.estimate == pytest.approx(math.sqrt(2))
    assert comparison.low == 1
    assert comparison.p_value == pytest.approx(2 / 2**6)
    assert not comparison.shown


def test_pairs_of_which_none_reached_tell_nothing() -> None:
    comparison = ratios(*[math.nan] * 8)
    assert comparison == PairedComparison(1.0, 8, None, None, None, None, 8, 8)
    assert not comparison.shown


def test_five_pairs_have_an_estimate_but_no_interval_and_show_nothing() -> None:
    comparison = ratios(*[9.0] * 5)
    assert comparison == PairedComparison(1.0, 5, comparison.estimate, None, None, None, 0, 0)
    assert comparison.estimate == pytest.approx(9)
    assert not comparison.shown
    assert ratios(*[9.0] * 6).shown


@pytest.mark.parametrize(
    ("low", "high", "p_value", "is_shown"),
    [
        (1.1, 2.0, 0.05, True),
        (0.5, 0.9, 0.01, True),
        (1.1, 2.0, 0.051, False),
        (0.9, 2.0, 0.01, False),
        (1.0, 2.0, 0.01, False),
        (0.5, 1.0, 0.01, False),
    ],
)
def test_a_difference_is_shown_by_interval_and_p_together(low, high, p_value, is_shown) -> None:
    assert PairedComparison(1.0, 10, 1.0, low, high, p_value, 0, 0).shown == is_shown


@pytest.mark.parametrize(
    ("compare", "first", "second", "sentence"),
    [
        (paired_ratio, [1, 2], [1], r"two lists of one length.*\(2,\) and \(1,\)"),
        (paired_ratio, [[1, 2]], [[1, 2]], r"\(1, 2\)"),
        (paired_ratio, [], [], "no pair"),
        (paired_ratio, [1, math.nan], [1, 2], "not a number.*math.inf"),
        (paired_ratio, [1, 2], [1, math.nan], "not a number"),
        (paired_ratio, [1, 0], [1, 2], "positive values, but the smallest is 0"),
        (paired_ratio, [1, 2], [-3, 2], "positive values, but the smallest is -3"),
        (paired_difference, [1, 2], [1], "two lists of one length"),
        (paired_difference, [], [], "no pair"),
        (paired_difference, [1, 2], [1, math.nan], "not a number"),
        (paired_difference, [1, 2], [1, INF], "finite"),
        (paired_difference, [-INF, 2], [1, 2], "finite"),
    ],
)
def test_what_is_no_pair_of_numbers_is_refused(compare, first, second, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        compare(first, second)


def random_scores(seed: int, *seeds_per_game: int, shift: float = 0.0) -> dict[str, np.ndarray]:
    """Whole scores, so that some are equal, of games that differ in level and spread."""
    rng = np.random.default_rng(seed)
    return {f"game {i}": np.round(rng.normal(i + shift, 1.0 + i, n)) for i, n in enumerate(seeds_per_game)}


def test_the_interquartile_mean_by_hand() -> None:
    assert interquartile_mean({"Pong": [8, 1, 6, 3], "Qbert": [5, 4, 7, -900]}) == (3 + 4 + 5 + 6) / 4
    assert interquartile_mean({"Pong": [1, 2, 3], "Qbert": [4, 5, 6, 70]}) == (2 + 3 + 4 + 5 + 6) / 5  # 7 // 4 = 1


def test_the_interquartile_mean_is_rliables() -> None:
    """rliable.metrics.aggregate_iqm: trim_mean of the matrix [runs, tasks], a quarter at either end, axis=None."""
    scores = random_scores(0, 9, 9, 9)
    wanted = stats.trim_mean(np.stack(list(scores.values()), axis=1), proportiontocut=0.25, axis=None)
    assert interquartile_mean(scores) == pytest.approx(wanted)


def test_the_probability_of_improvement_is_brute_force_and_rliables() -> None:
    """rliable.metrics.probability_of_improvement(x, y): mean over tasks of Mann-Whitney's U / (runs_x * runs_y)."""
    first, second = random_scores(0, 9, 9, 5), random_scores(1, 9, 7, 12, shift=0.5)
    brute = [
        np.mean([1.0 if b > a else 0.5 if b == a else 0.0 for a in first[game] for b in second[game]]) for game in first
    ]
    u = [
        stats.mannwhitneyu(second[game], first[game]).statistic / (len(first[game]) * len(second[game]))
        for game in first
    ]
    assert probability_of_improvement(first, second) == pytest.approx(np.mean(brute))
    assert probability_of_improvement(first, second) == pytest.approx(np.mean(u))
    assert probability_of_improvement({"Pong": [1, 2]}, {"Pong": [3, 4, 5]}) == 1
    assert probability_of_improvement(first, first) == 0.5


def test_games_are_matched_by_name_and_not_by_place() -> None:
    first, second = {"Pong": [1, 2], "Qbert": [8, 9]}, {"Qbert": [18, 19], "Pong": [3, 4]}
    assert probability_of_improvement(first, second) == 1


def test_seeds_are_drawn_within_their_game() -> None:
    """Games far apart, no spread within them: seeds drawn across games would spread from 0 to 1000."""
    constant = {"Pong": [0.0] * 4, "Qbert": [1000.0] * 4}
    assert stratified_interval(interquartile_mean, constant, resamples=50) == (500, 500)
    gap = {"Pong": [0.0] * 2, "Qbert": [1000.0] * 6}  # as many are drawn as there are, too
    assert stratified_interval(interquartile_mean, gap, resamples=50) == (interquartile_mean(gap),) * 2


def test_both_ways_are_drawn_independently_and_the_same_again() -> None:
    scores = random_scores(0, 8, 8)

    def gain(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> float:
        return interquartile_mean(second) - interquartile_mean(first)

    low, high = stratified_interval(gain, scores, scores, resamples=200)
    assert low < 0 < high
    assert (low, high) == stratified_interval(gain, scores, scores, resamples=200)
    assert (low, high) != stratified_interval(gain, scores, scores, resamples=200, seed=1)


@pytest.mark.parametrize(("seeds", "at_least", "at_most"), [(12, 0.88, 0.98), (2, 0.6, 0.85)])
def test_the_stratified_interval_covers_about_95_times_in_100_but_not_with_2_seeds(seeds, at_least, at_most) -> None:
    def mean(scores: dict[str, np.ndarray]) -> float:
        return sum(runs.mean() for runs in scores.values()) / len(scores)

    covered = 0
    for seed in range(200):
        low, high = stratified_interval(mean, random_scores(seed, seeds, seeds), resamples=150, seed=seed)
        covered += low <= 0.5 <= high  # the true means are 0 and 1
    assert at_least <= covered / 200 <= at_most


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ({}, "no game"),
        ({"Pong": []}, "Pong needs"),
        ({"Pong": [1, 2], "Qbert": [1, math.nan]}, "Qbert needs one finite score"),
        ({"Pong": [1, INF]}, "Pong needs"),
        ({"Pong": [[1, 2], [3, 4]]}, "Pong needs"),
    ],
)
def test_what_cannot_be_averaged_is_refused(scores, sentence) -> None:
    whole = {game: [1.0, 2.0] for game in scores}
    for refused in (
        lambda: interquartile_mean(scores),
        lambda: probability_of_improvement(scores, whole),
        lambda: probability_of_improvement(whole, scores),
        lambda: stratified_interval(interquartile_mean, scores, resamples=1),
    ):
        with pytest.raises(ValueError, match=sentence):
            refused()


def test_different_games_and_single_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="the same games, but only one has Pong, Qbert"):
        probability_of_improvement({"Pong": [1], "Boxing": [1]}, {"Qbert": [1], "Boxing": [1]})
    with pytest.raises(ValueError, match="at least 2 seeds of each game, but Qbert has 1"):
        stratified_interval(interquartile_mean, {"Pong": [1, 2], "Qbert": [1]})
