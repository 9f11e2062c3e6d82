"""The frames of a video: the game's picture beside the network's input and outputs.

Everything is drawn once per game, agent step or frame, whichever is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

from a2c.algorithms.policy import Shown
from a2c.show.game import Saliency, Step, Thoughts
from a2c.show.saliency import channels_last, is_image

Colour = tuple[int, int, int]

WIDTH, HEIGHT = 1280, 720  # even, as yuv420p requires
MARGIN = 24
GAME = (24, 64, 800, 630)  # left, top, width, height: Atari's 160 x 210 pixels at 5 x 3 each, nearly a television's 4:3
PANEL = (848, 64, 408, 632)
ATARI_ASPECT = 5 / 3  # width of a pixel over its height
RECENT_SECONDS = 8.0  # the span of the curve, and of the maximum that scales the saliency
MOST_BARS = 18
MOST_IMAGES = 15
LEVELS = 5  # of the saliency, above zero

BACKGROUND: Colour = (15, 18, 24)
RAISED: Colour = (27, 32, 42)
TEXT: Colour = (232, 235, 240)
DIM: Colour = (139, 149, 165)
# three of Okabe and Ito's colours, which the colour-blind can distinguish; a word or a mark always stands beside them
ORANGE: Colour = (230, 159, 0)
BLUE: Colour = (86, 180, 233)
GREEN: Colour = (0, 158, 115)
GLOW: Colour = (0, 240, 255)  # of the saliency: no game's background has it


# of each action: what it is, how it is written, and what a saliency of the policy moves
_TOLD: dict[Shown, str] = {"probabilities": "probability", "q_values": "Q-value"}
_FORMS: dict[Shown, str] = {"probabilities": ".1%", "q_values": "+.2f"}
_MOVED: dict[Shown, str] = {"probabilities": "log p of the action", "q_values": "Q of the action"}


class Caption(NamedTuple):
    """Texts and figures of the whole game."""

    title: str
    subtitle: str
    action_names: Sequence[str]
    steps_per_second: float
    pixel_aspect: float  # of the game's picture: width of a pixel over its height
    value_meaning: tuple[str, str]  # what the network's value estimates, in two lines
    saliency: Saliency | None


class Painter:
    """Draws the frames of one game; a returned array is valid until the next frame."""

    def __init__(self, caption: Caption, thoughts: Thoughts) -> None:
        self.caption = caption
        self.thoughts = thoughts
        self.length = len(thoughts.values)
        # the actions that are best on average, in their own order
        most = np.argsort(-thoughts.actions.mean(axis=0), kind="stable")[:MOST_BARS]
        self.bars = np.sort(most).tolist()
        self.shares = _shares(thoughts)
        self.row = min(26, 288 // len(self.bars))
        self.curve_top = 224 + self.row * len(self.bars) + 16
        span = np.concatenate([thoughts.values, thoughts.returns, [0.0]])
        self.low, self.high = float(span.min()), float(span.max()) + 1e-6
        self.canvas = self._background()
        self.panel = self._empty_panel()

    def step(self, t: int, step: Step) -> None:
        """Draw what belongs to agent step t, counted from 0."""
        panel = self.panel.copy()
        self._draw_observation(panel, step.observation)
        self._draw_bars(panel, t, step.action)
        self._draw_curve(panel, t)
        image = Image.fromarray(panel)
        self._write(ImageDraw.Draw(image), t, step)
        left, top, width, height = PANEL
        self.canvas[top : top + height, left : left + width] = np.asarray(image)
        done = round(GAME[2] * (t + 1) / self.length)
        self.canvas[702:706, GAME[0] : GAME[0] + done] = DIM

    def frame(self, t: int, picture: np.ndarray) -> np.ndarray:
        """The whole frame [720, 1280, 3] uint8, with a picture [H, W, 3] of the game in step t."""
        left, top, width, height = _fit(picture.shape, self.caption.pixel_aspect)
        picture = dyed(picture, self.caption, self.thoughts, t)
        shrinks = picture.shape[1] > width
        way = cv2.INTER_AREA if shrinks else cv2.INTER_NEAREST
        place = self.canvas[top : top + height, left : left + width]
        cv2.resize(picture, (width, height), dst=place, interpolation=way)
        return self.canvas

    def _background(self) -> np.ndarray:
        image = Image.new("RGB", (WIDTH, HEIGHT), BACKGROUND)
        draw = ImageDraw.Draw(image)
        title = _shortened(self.caption.title, 400, _font(26, bold=True))
        draw.text((MARGIN, 14), title, TEXT, _font(26, bold=True))
        start = MARGIN + draw.textlength(title, _font(26, bold=True)) + 18
        draw.text((start, 23), _shortened(self.caption.subtitle, WIDTH - MARGIN - start, _font(16)), DIM, _font(16))
        left, top, width, height = GAME
        draw.rectangle((left, top, left + width - 1, top + height - 1), (0, 0, 0))
        draw.rectangle((left, 702, left + width - 1, 705), RAISED)
        return np.array(image)

    def _empty_panel(self) -> np.ndarray:
        _, _, width, height = PANEL
        image = Image.new("RGB", (width, height), BACKGROUND)
        draw = ImageDraw.Draw(image)
        draw.text((0, 0), "score", DIM, _font(14))
        draw.text((290, 0), "time", DIM, _font(14))
        draw.text((0, 202), f"{_TOLD[self.thoughts.shows]} of each action; the one taken is marked", DIM, _font(14))
        for row, action in enumerate(self.bars):
            y = 224 + row * self.row
            draw.text((16, y + self.row // 2), self._name(action), DIM, self._row_font(), anchor="lm")
            draw.rectangle((140, y + 2, 340, y + self.row - 3), RAISED)
        draw.text((0, self.curve_top), "value", BLUE, _font(14, bold=True))
        draw.text((130, self.curve_top), "what came of it", GREEN, _font(14, bold=True))
        for i, line in enumerate(self.caption.value_meaning):
            draw.text((0, height - 54 + 17 * i), line, DIM, _font(12))
        if self.caption.saliency:
            draw.text((0, height - 17), self._saliency_legend(), GLOW, _font(12))
        x0, y0, x1, y1 = self._curve_box()
        draw.rectangle((x0, y0, x1, y1), RAISED)
        panel = np.array(image)
        zero = self._curve_y(0.0)
        panel[zero, x0 : x1 + 1 : 4] = DIM
        return panel

    def _saliency_legend(self) -> str:
        what = "the value" if self.caption.saliency == "value" else _MOVED[self.thoughts.shows]
        return f"glow: a blur there moves {what} by up to"

    def _name(self, action: int) -> str:
        return _shortened(self.caption.action_names[action], 120, self._row_font())

    def _row_font(self) -> Any:
        return _font(min(15, self.row - 3))

    def _curve_box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom, within the panel."""
        return 0, self.curve_top + 24, PANEL[2] - 1, PANEL[3] - 63

    def _curve_y(self, value: Any) -> Any:
        _, top, _, bottom = self._curve_box()
        share = (value - self.low) / (self.high - self.low)
        return np.rint(bottom - 6 - share * (bottom - top - 12)).astype(int)

    def _draw_observation(self, panel: np.ndarray, observation: np.ndarray) -> None:
        if not is_image(observation):
            _draw_numbers(panel[92:188], observation)
            return
        pictures = np.moveaxis(channels_last(observation), 2, 0)[-MOST_IMAGES:]
        side = min(96, (PANEL[2] + 8) // len(pictures) - 8)
        for i, picture in enumerate(pictures):
            grey = cv2.resize(np.ascontiguousarray(picture), (side, side), interpolation=cv2.INTER_AREA)
            panel[92 : 92 + side, i * (side + 8) : i * (side + 8) + side] = grey[:, :, None]

    def _draw_bars(self, panel: np.ndarray, t: int, taken: int) -> None:
        for row, action in enumerate(self.bars):
            top, bottom = 224 + row * self.row + 2, 224 + (row + 1) * self.row - 2
            filled = round(200 * float(self.shares[t, action]))
            panel[top:bottom, 140 : 140 + filled] = ORANGE if action == taken else DIM
            if action == taken:
                middle = (top + bottom) // 2
                cv2.fillPoly(panel, [np.array([[2, middle - 5], [10, middle], [2, middle + 5]])], ORANGE, cv2.LINE_AA)

    def _draw_curve(self, panel: np.ndarray, t: int) -> None:
        first = _first_recent(self.caption, t)
        x0, _, x1, _ = self._curve_box()
        shown = min(self.length, _recent(self.caption))
        width = (x1 - x0 - 8) / max(1, shown - 1)
        x = np.rint(x1 - 6 - width * np.arange(t - first, -1, -1)).astype(int)
        for curve, colour in ((self.thoughts.returns, GREEN), (self.thoughts.values, BLUE)):
            points = np.stack([x, self._curve_y(curve[first : t + 1])], axis=1).astype(np.int32)
            cv2.polylines(panel, [points], False, colour, 2, cv2.LINE_AA)
        cv2.circle(panel, (int(x[-1]), int(points[-1, 1])), 4, BLUE, -1, cv2.LINE_AA)

    def _write(self, draw: ImageDraw.ImageDraw, t: int, step: Step) -> None:
        draw.text((0, 16), f"{step.score:g}", TEXT, _font(36, bold=True))
        draw.text((290, 26), _clock(self.caption, t), TEXT, _font(22))
        draw.text((0, 70), f"the network sees {described(step.observation)}", DIM, _font(14))
        if step.lives:
            draw.text((180, 0), "lives", DIM, _font(14))
            draw.text((180, 26), str(step.lives), TEXT, _font(22))
        for row, action in enumerate(self.bars):
            middle = 224 + row * self.row + self.row // 2
            colour = ORANGE if action == step.action else TEXT
            told = f"{self.thoughts.actions[t, action]:{_FORMS[self.thoughts.shows]}}"
            draw.text((408, middle), told, colour, self._row_font(), anchor="rm")
            if action == step.action:
                draw.text((16, middle), self._name(action), ORANGE, self._row_font(), anchor="lm")
        draw.text((48, self.curve_top), f"{self.thoughts.values[t]:+.2f}", TEXT, _font(14))
        draw.text((258, self.curve_top), f"{self.thoughts.returns[t]:+.2f}", TEXT, _font(14))
        if self.thoughts.effects is not None:
            start = draw.textlength(self._saliency_legend(), _font(12)) + 6
            draw.text((start, PANEL[3] - 17), f"{self.thoughts.effects[t].max():.3f}", TEXT, _font(12))


def dyed(picture: np.ndarray, caption: Caption, thoughts: Thoughts, t: int) -> np.ndarray:
    """A picture [H, W, 3] uint8, dimmed, with a glow by the square root of the saliency of step t.

    It is scaled by the maximum of the last RECENT_SECONDS, so that calm moments stay dark. The glow has few levels: a
    smooth one makes a GIF three times as large.
    """
    if thoughts.effects is None:
        return picture
    most = thoughts.effects[_first_recent(caption, t) : t + 1].max()
    height, width, _ = picture.shape
    heat = cv2.resize(thoughts.effects[t] / max(most, 1e-9), (width, height), interpolation=cv2.INTER_CUBIC)
    heat = np.rint(np.sqrt(np.clip(heat, 0.0, 1.0)) * LEVELS)[:, :, None] / LEVELS
    mixed: np.ndarray = (picture * (0.6 - 0.2 * heat) + np.array(GLOW, np.float32) * 0.6 * heat).astype(np.uint8)
    return mixed


def lines(caption: Caption, thoughts: Thoughts, t: int, step: Step) -> list[str]:
    """What `Painter` shows, in two lines of text."""
    lives = f"lives {step.lives}  " if step.lives else ""
    form = _FORMS[thoughts.shows].replace("1%", "0%")
    bars = [f"{name} {x:{form}}" for name, x in zip(caption.action_names, thoughts.actions[t], strict=True)]
    state = f"{caption.title}  score {step.score:g}  {lives}{_clock(caption, t)}  value {thoughts.values[t]:+.2f}"
    return [f"{state}  ▸{bars[step.action]}", "  ".join(bars)]


def _shares(thoughts: Thoughts) -> np.ndarray:
    """The lengths of the bars, [T, A] in [0, 1]: Q-values from the least to the largest of the game."""
    if thoughts.shows == "probabilities":
        return thoughts.actions
    low, high = thoughts.actions.min(), thoughts.actions.max()
    shares: np.ndarray = (thoughts.actions - low) / max(high - low, 1e-9)
    return shares


def _clock(caption: Caption, t: int) -> str:
    seconds = (t + 1) / caption.steps_per_second
    return f"{int(seconds // 60)}:{seconds % 60:04.1f}"


def _first_recent(caption: Caption, t: int) -> int:
    return max(0, t + 1 - _recent(caption))


def _recent(caption: Caption) -> int:
    """RECENT_SECONDS in agent steps, at least one."""
    return max(1, round(RECENT_SECONDS * caption.steps_per_second))


def _draw_numbers(box: np.ndarray, observation: np.ndarray) -> None:
    """Draw a vector's numbers as bars above or below a line, scaled to the largest."""
    height, width, _ = box.shape
    numbers = np.nan_to_num(observation.ravel().astype(np.float32))[: width // 2].astype(np.float64)
    middle = height // 2
    scaled = np.rint(numbers / max(np.abs(numbers).max(), 1e-9) * (middle - 2)).astype(int)
    step = min(48, width // len(numbers))
    for i, length in enumerate(scaled):
        low, high = sorted((middle - length, middle))
        box[low : high + 1, i * step : i * step + max(1, step - 2)] = BLUE
    box[middle] = DIM


def described(observation: np.ndarray) -> str:
    """What a network sees, in words."""
    if not is_image(observation):
        return f"{observation.size} numbers"
    height, width, channels = channels_last(observation).shape
    if channels == 3:  # one colour image, or three grey ones
        return f"3 channels of {width} x {height}"
    return f"{channels} grey image{'s' if channels > 1 else ''} of {width} x {height}{', newest last' * (channels > 1)}"


def _fit(shape: tuple[int, ...], pixel_aspect: float) -> tuple[int, int, int, int]:
    """Left, top, width and height of a picture in the middle of the game's box, enlarged only by whole factors."""
    left, top, box_width, box_height = GAME
    wide = shape[1] * pixel_aspect
    scale = min(box_width / wide, box_height / shape[0])
    scale = int(scale) if scale >= 1 else scale
    width, height = round(wide * scale), round(shape[0] * scale)
    return left + (box_width - width) // 2, top + (box_height - height) // 2, width, height


def _shortened(text: str, width: float, font: Any) -> str:
    while len(text) > 1 and font.getlength(text) > width:
        text = text[:-2].rstrip() + "…"
    return text


@cache
def _font(size: int, *, bold: bool = False) -> Any:
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), max(6, size))
