"""What a running program needs in every layer: the log, deadlines, tasks in the background, and private files."""
