"""Evaluation on whole games: scores and protocols."""
