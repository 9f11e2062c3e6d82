"""Comparisons of ways to train: where runs diverge, why, and what difference is shown."""
