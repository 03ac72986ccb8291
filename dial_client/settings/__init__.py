"""The configuration file ``servers.json``.

`configuration` reads it into `config_types`, `jsonc` parses it, `variables` expands ``${…}``. `config_writer` edits it;
`hosts` and `server_sources` translate servers from other hosts and from published descriptions.
"""
