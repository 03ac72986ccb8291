"""Answers in a terminal: Markdown that arrives in pieces becomes styled text, block by block."""
