"""Whether calls and results arrive as they were written: public multi-turn tasks, driven by their solutions."""
