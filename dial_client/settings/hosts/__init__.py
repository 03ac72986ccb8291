"""Configurations of other MCP hosts: where each host keeps its files, and how its entries read here and there.

``host_files`` has the hosts and the places of their files. ``host_documents`` finds the servers in the text of a file,
with ``yaml_reader`` for YAML; ``host_entries`` translates an entry into one of ``servers.json``, and ``host_export``
translates back.
"""
