"""The rank and shape check at the door of every public maths function: static, so free in graphs."""

from __future__ import annotations

from typing import Any


def check_shapes(function: str, rank: int, **arrays: Any) -> None:
    """Refuse arrays of another rank or of shapes that differ from each other, instead of broadcasting.

    Advantages of shape (n, 1) times log-probabilities of shape (n,) broadcast to (n, n), and the mean over
    that has lost which advantage belongs to which action: a mistake that trains, badly, without a word.

    Raises:
        ValueError: naming the function, the arguments and their shapes.
    """
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    for name, shape in shapes.items():
        if len(shape) != rank:
            raise ValueError(
                f"{function}: {name} must have rank {rank}, got shape {shape}; all shapes: {_list(shapes)}"
            )
    first, *others = shapes
    for name in others:
        if shapes[name] != shapes[first]:
            raise ValueError(
                f"{function}: {first} has shape {shapes[first]} but {name} has shape {shapes[name]}; "
                f"they must be the same, nothing is broadcast"
            )


def _list(shapes: dict[str, tuple[int | None, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())
