"""A ``servers.json``: `configuration` reads it into `config_types`; `jsonc` parses, `variables` expands ``${…}``."""
