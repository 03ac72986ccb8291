"""Readers of published descriptions of servers, which translate them to entries of ``servers.json``.

``deep_links`` reads the links behind "add to Cursor" and "install in VS Code". ``registry_documents`` reads the
``server.json`` of the MCP registry. ``bundles`` unpacks ``.mcpb`` files.
"""
