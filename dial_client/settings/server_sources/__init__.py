"""Descriptions of servers that are published elsewhere, as entries of ``servers.json``.

``deep_links`` reads the links behind "add to Cursor" and "install in VS Code". ``registry_documents`` reads the
``server.json`` of the MCP registry. ``bundles`` unpacks ``.mcpb`` files.
"""
