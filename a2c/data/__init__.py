"""Rollouts and their collector."""
