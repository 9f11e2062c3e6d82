"""Comparisons of ways to train: where runs part, why, and what difference is shown."""
