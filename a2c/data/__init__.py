"""Rollouts, and what collects them."""
