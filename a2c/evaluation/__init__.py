"""Whole games, their scores and protocols."""
