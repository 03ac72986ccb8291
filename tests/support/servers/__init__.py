"""MCP servers for the tests. Each ends by itself: when its standard input does, and after two minutes at the latest."""
