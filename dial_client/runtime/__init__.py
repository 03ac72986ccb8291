"""Functions that every layer uses: public names, logs, deadlines, background tasks and private files."""
