"""Transports to servers: stdio, streamable HTTP, HTTP+SSE."""
