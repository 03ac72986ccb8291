"""Conversations: `chat_loop` is the ordinary chat loop, `conversation_manager` runs turns of many conversations.

`persistence` stores turns, `lease_heartbeat` renews their leases, `turn_queue` runs them one after the other, `export`
writes JSON and Markdown.
"""
