"""Rollouts, what collects them, and the replay."""
