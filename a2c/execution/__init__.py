"""Execution: compiled functions, numerics, threads, replicas, machines."""
