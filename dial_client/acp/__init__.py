"""The agent of the Agent Client Protocol (ACP), for editors: sessions, prompts, permissions, on standard streams.

The package `acp` of the protocol is the extra ``acp``; it is imported when an editor starts the agent.
"""
