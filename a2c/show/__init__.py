"""Videos, plots and reports of runs."""
