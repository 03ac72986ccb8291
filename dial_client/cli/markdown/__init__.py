"""Renders answers in a terminal: converts streamed Markdown into styled text, block by block."""
