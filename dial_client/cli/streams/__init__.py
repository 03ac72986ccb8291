"""The process and its standard streams: signals, exit codes, lines of output and errors, and typed answers."""
