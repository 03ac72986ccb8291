"""Functions that every layer uses while the program runs: logs, deadlines, background tasks and private files."""
