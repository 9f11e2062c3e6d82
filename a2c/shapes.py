"""The rank and shape check of public maths functions that combine arrays: static, so it costs nothing in graphs."""

from __future__ import annotations

from typing import Any


def check_shapes(function: str, rank: int, **arrays: Any) -> None:
    """Check that all arrays have the given rank and the same shape, so that nothing is broadcast.

    Advantages of shape (n, 1) times log-probabilities of shape (n,) broadcast to (n, n), and the mean mixes the
    advantages of all actions: training gets worse without an error.

    Raises:
        ValueError: if not; it names the function, the arguments and their shapes.
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
