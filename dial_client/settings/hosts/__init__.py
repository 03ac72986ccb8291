"""Configurations of other MCP hosts: the locations of their files, and the translation of their entries.

``host_files`` lists the hosts and the locations of their files. ``host_documents`` finds the servers in a file, with
``yaml_reader`` for YAML. ``host_entries`` translates an entry to one of ``servers.json``, ``host_export`` translates
back.
"""
