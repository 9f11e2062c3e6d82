"""The first question's experiment: which passes of Grappler make eager and graph differ."""

import math

import numpy as np
import pytest
import tensorflow as tf

from a2c.analysis.studies.question import (
    GAMMA,
    LOSSES,
    STD,
    QuestionResult,
    build_network,
    discounted_cumulative_sums,
    policy_loss,
    recorded_data,
    run_question,
    train,
    value_loss,
)
from a2c.analysis.switches import switch_off

pytestmark = pytest.mark.usefixtures("exact_numerics")  # which puts the passes back in the end

ARITHMETIC, CONSTANTS = "arithmetic_optimization", "constant_folding"
RUNS = {"policy": {}, "value": {"loss": "value"}, "td": {"loss": "value", "standardize": False}}


def result_without(run: str, *passes: str) -> QuestionResult:
    """Of the policy's loss, of the value loss, or of the value loss without the discounted sums."""
    switch_off(passes)
    return run_question(**RUNS[run])


def assert_differs(result: QuestionResult, *, advantages: bool) -> None:
    assert not result.complete
    assert result.advantages_equal != advantages
    assert (0 < result.advantages_distance < 1e-6) == advantages
    # iterations and rate, and as luck has it the single numbers that are the moments of the output's bias
    assert 2 <= result.optimizer_variables_equal <= 4
    for distances in (result.weight_distances, result.first_moment_distances, result.second_moment_distances):
        assert len(distances) == 5
        assert 0 < distances[-1] < 1e-3


def assert_agrees(result: QuestionResult) -> None:
    assert result.complete
    assert result.advantages_equal
    assert result.advantages_distance == 0
    assert result.optimizer_variables_equal == result.optimizer_variables == 14
    for distances in (result.weight_distances, result.first_moment_distances, result.second_moment_distances):
        assert list(distances) == [0] * 5


def test_by_default_advantages_and_moments_differ():
    assert_differs(result_without("policy"), advantages=True)


@pytest.mark.integration
def test_the_values_differ_as_the_policy_does_but_for_their_moments():
    assert_differs(result_without("value"), advantages=True)
    assert_agrees(result_without("value", ARITHMETIC))
    assert_agrees(result_without("value", ARITHMETIC, CONSTANTS))


def test_without_the_discounted_sums_nothing_differs_as_the_question_says():
    assert_agrees(result_without("td"))


def test_without_arithmetic_optimization_the_advantages_are_equal_and_the_policys_moments_are_not():
    assert_differs(result_without("policy", ARITHMETIC), advantages=False)


def test_without_both_passes_all_is_equal():
    assert_agrees(result_without("policy", ARITHMETIC, CONSTANTS))


def test_the_discounted_sums_are_standardised():
    td_errors = recorded_data().td_errors
    sums = [0.0]
    for td_error in td_errors.numpy().astype(np.float64)[::-1]:
        sums.insert(0, td_error + GAMMA * sums[0])
    expected = np.array(sums[:-1])
    expected = (expected - expected.mean()) / expected.std()
    np.testing.assert_allclose(discounted_cumulative_sums(td_errors), expected, atol=1e-5)


def test_the_losses_are_their_formulas():
    outputs, actions, advantages = np.array([0.1, -0.3]), np.array([0.2, 0.4]), np.array([1.5, -2.0])
    densities = np.exp(-((actions - outputs) ** 2) / (2 * STD**2)) / math.sqrt(2 * math.pi * STD**2)
    assert float(policy_loss(outputs, actions, advantages)) == pytest.approx(-np.mean(np.log(densities) * advantages))
    assert float(value_loss(outputs, actions, advantages)) == pytest.approx(np.mean((advantages - outputs) ** 2))


def test_training_snapshots_weights_and_both_moments_after_each_update():
    data, network = recorded_data(), build_network()
    trained = train(lambda function: function, LOSSES["policy"], discounted_cumulative_sums, 2)
    assert len(trained.snapshots) == 2
    with tf.GradientTape() as tape:
        loss = policy_loss(network(data.states)[:, 0], data.actions, discounted_cumulative_sums(data.td_errors))
    gradients = tape.gradient(loss, network.trainable_variables)
    first = trained.snapshots[0]
    assert first.optimizer[0] == 1  # iterations
    assert [weight.shape for weight in first.weights] == [(4, 64), (64,), (64, 64), (64,), (64, 1), (1,)]
    for gradient, one, two in zip(gradients, first.first_moments, first.second_moments, strict=True):
        np.testing.assert_allclose(one, 0.1 * gradient, rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(two, 0.001 * gradient**2, rtol=1e-4, atol=1e-12)
