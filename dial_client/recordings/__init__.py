"""Records conversations in a file, for bug reports and tests (`recording`), and replays them offline (`replay`)."""
