"""Conversations: `conversation_manager` runs their turns, `persistence` stores them, `export` writes them out."""
