"""Conversations: `conversation_manager` runs turns, `persistence` stores them, `export` writes JSON and Markdown."""
