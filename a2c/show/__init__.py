"""What people look at: videos, plots, reports."""
