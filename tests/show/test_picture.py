"""What is drawn is where it must be, with numbers that are known."""

from __future__ import annotations

import numpy as np
import pytest

from a2c.show.game import Step, Thoughts
from a2c.show.picture import ATARI_ASPECT, BLUE, DIM, GAME, ORANGE, PANEL, Caption, Painter, described, dyed, lines
from a2c.show.saliency import GRID


def caption(actions: int = 2, **changes: object) -> Caption:
    values = {
        "title": "Pong",
        "subtitle": "after some steps",
        "action_names": [f"ACTION{i}" for i in range(actions)],
        "steps_per_second": 15.0,
        "pixel_aspect": ATARI_ASPECT,
        "value_meaning": ("a sum,", "discounted"),
        "saliency": None,
    }
    return Caption(**{**values, **changes})


def thoughts(probabilities: list[list[float]], values: list[float] | None = None) -> Thoughts:
    t = len(probabilities)
    line = np.array(values or np.zeros(t), np.float32)
    return Thoughts(np.array(probabilities, np.float32), "probabilities", line, np.zeros(t, np.float32), None)


def test_q_values_have_bars_from_the_least_to_the_largest_of_the_game():
    own = thoughts([[-1.0, 3.0, 1.0], [0.0, 0.0, 1.0]])._replace(shows="q_values")
    shown = panel(Painter(caption(3), own), 0, step(action=1))
    bars = [shown[224 + 26 * row + 13, 140:341] for row in range(3)]
    assert [(bar == DIM).all(axis=1).sum() for bar in bars] == [0, 0, 100]
    assert (bars[1] == ORANGE).all(axis=1).sum() == 200
    assert "+3.00" in lines(caption(3), own, 0, step(action=1))[0]


def step(action: int = 0, **changes: object) -> Step:
    blank = np.zeros((42, 42, 4), np.uint8)
    return Step(blank, action, 0.0, 3.0, 4, False, False, False, blank, [])._replace(**changes)


def panel(painter: Painter, t: int, step: Step) -> np.ndarray:
    painter.step(t, step)
    left, top, width, height = PANEL
    return painter.frame(t, np.zeros((210, 160, 3), np.uint8))[top : top + height, left : left + width]


def test_a_step_may_take_longer_than_the_span_of_the_curve():
    own = thoughts([[0.5, 0.5]] * 3)._replace(effects=np.ones((3, GRID, GRID), np.float32))
    slow = caption(steps_per_second=0.05, saliency="value")
    panel(Painter(slow, own), 2, step())
    assert dyed(np.zeros((210, 160, 3), np.uint8), slow, own, 2).max() > 0


def test_the_screen_is_the_emulators_pixel_by_pixel():
    screen = np.random.default_rng(0).integers(256, size=(210, 160, 3), dtype=np.uint8)
    frame = Painter(caption(), thoughts([[0.5, 0.5]])).frame(0, screen)
    left, top, width, height = GAME
    assert frame.shape == (720, 1280, 3)
    shown = frame[top : top + height, left : left + width]
    np.testing.assert_array_equal(shown, screen.repeat(3, axis=0).repeat(5, axis=1))


@pytest.mark.parametrize(
    ("shape", "size"), [((600, 400, 3), (600, 400)), ((1200, 900, 3), (630, 472)), ((10, 90, 3), (80, 720))]
)
def test_other_pictures_keep_their_proportions(shape, size):
    painter = Painter(caption(pixel_aspect=1.0), thoughts([[0.5, 0.5]]))
    left, top, width, height = GAME
    lit = painter.frame(0, np.full(shape, 200, np.uint8))[top : top + height, left : left + width] == 200
    rows, columns = lit[:, :, 0].any(axis=1).sum(), lit[:, :, 0].any(axis=0).sum()
    assert (rows, columns) == size  # enlarged by whole numbers alone


def test_bars_are_as_long_as_probabilities_and_the_action_taken_is_marked():
    painter = Painter(caption(3), thoughts([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]]))
    shown = panel(painter, 0, step(action=1))
    middles = [224 + 26 * row + 13 for row in range(3)]
    bars = [shown[middle, 140:341] for middle in middles]
    assert [(bar == DIM).all(axis=1).sum() for bar in bars] == [50, 0, 0]
    assert [(bar == ORANGE).all(axis=1).sum() for bar in bars] == [0, 150, 0]
    marked = [(shown[middle - 4 : middle + 4, :12] == ORANGE).all(axis=2).any() for middle in middles]
    assert marked == [False, True, False]
    later = panel(painter, 1, step(action=0))
    assert (later[middles[0], 140:340] == ORANGE).all()
    assert not (later[middles[1]] == ORANGE).all(axis=1).any()


def test_names_of_any_length_end_where_there_is_no_room():
    long = caption(title="x" * 300, subtitle="y" * 900, action_names=["z" * 100, "B"])
    frame = Painter(long, thoughts([[0.5, 0.5]])).frame(0, np.zeros((210, 160, 3), np.uint8))
    left, _, width, _ = PANEL
    assert (frame[:60, : left + width].max(axis=2) > 200).any()
    assert not (frame[:60, left + width :].max(axis=2) > 60).any()
    assert not (frame[300:304, left + 136 : left + 140].max(axis=2) > 60).any()


@pytest.mark.parametrize(("actions", "rows"), [(1, 1), (18, 18), (40, 18)])
def test_any_number_of_actions_finds_its_place(actions, rows):
    """Of many, those are shown that are most probable over the game, in their own order."""
    shares = np.full(actions, 0.001)
    shares[-1] = 1 - shares[:-1].sum()
    painter = Painter(caption(actions), thoughts([shares.tolist()]))
    assert len(painter.bars) == rows
    assert painter.bars == sorted(painter.bars)
    assert actions - 1 in painter.bars
    assert painter.curve_top + 100 < PANEL[3]
    shown = panel(painter, 0, step(action=actions - 1))
    assert (shown == ORANGE).all(axis=2).sum() > 1000


def test_the_value_is_drawn_at_its_height():
    painter = Painter(caption(), thoughts([[0.5, 0.5]] * 2, values=[-1.0, 1.0]))
    left, top, right, bottom = painter._curve_box()
    ends = []
    for t in range(2):
        box = panel(painter, t, step())[top : bottom + 1, left : right + 1]
        dot = np.argwhere((box[:, -12:] == BLUE).all(axis=2))
        ends.append(dot[:, 0].mean())
    assert ends == [pytest.approx(bottom - top - 6, abs=2), pytest.approx(6, abs=2)]


def test_what_the_network_sees_is_shown_in_its_order():
    painter = Painter(caption(), thoughts([[0.5, 0.5]]))
    images = np.zeros((42, 42, 4), np.uint8) + np.array([50, 100, 150, 200], np.uint8)
    for observation in (images, np.moveaxis(images, 2, 0)):
        shown = panel(painter, 0, step(observation=observation))
        assert [int(shown[140, 48 + 104 * i, 0]) for i in range(4)] == [50, 100, 150, 200]
    numbers = panel(painter, 0, step(observation=np.array([1.0, -0.5], np.float32)))[92:188]
    heights = [(numbers[:, 48 * i + 20] == BLUE).all(axis=1).sum() for i in range(2)]
    assert heights == [46, 23]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((4, 84, 84), "4 grey images of 84 x 84, newest last"),
        ((84, 84, 1), "1 grey image of 84 x 84"),
        ((96, 90, 3), "3 channels of 90 x 96"),  # colours, or three grey images
    ],
)
def test_what_the_network_sees_is_named(shape, words):
    assert described(np.zeros(shape, np.uint8)) == words


def test_the_saliency_glows_in_its_place_beside_that_of_the_last_seconds():
    effects = np.zeros((200, GRID, GRID), np.float32)
    effects[0, 2, 3] = 8.0
    effects[1, 2, 3] = 0.5
    effects[150:, 12, 1] = 0.5
    game = thoughts([[0.5, 0.5]] * 200)._replace(effects=effects)
    grey = np.full((210, 160, 3), 100, np.uint8)
    brightness = [dyed(grey, caption(), game, t)[:, :, 2].max() for t in (0, 1, 150)]
    assert brightness[0] == brightness[2] > brightness[1] > 60
    glow = np.argwhere(dyed(grey, caption(), game, 0)[:, :, 2] == brightness[0])
    np.testing.assert_allclose(glow.mean(axis=0), [2.5 * 210 / GRID, 3.5 * 160 / GRID], atol=2)
    np.testing.assert_array_equal(dyed(grey, caption(), thoughts([[0.5, 0.5]]), 0), grey)


def test_the_lines_of_a_terminal_say_the_same():
    game = thoughts([[0.25, 0.75]] * 16, values=[0.5] * 16)
    assert lines(caption(), game, 14, step(action=1)) == [
        "Pong  score 3  lives 4  0:01.0  value +0.50  ▸ACTION1 75%",
        "ACTION0 25%  ACTION1 75%",
    ]
