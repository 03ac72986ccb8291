"""Where a turn's events go."""
