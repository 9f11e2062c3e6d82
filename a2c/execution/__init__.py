"""How the maths is executed: compiled functions, numerics, threads, replicas, machines."""
