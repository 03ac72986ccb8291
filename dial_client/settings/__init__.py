"""The configuration file ``servers.json``.

`configuration` reads it into `config_types`: `jsonc` parses it, `config_values` reads typed values and expands
``${…}``, `config_entries` and `policy_config` read the entries and the rules. `config_trust` stores which found files
the user trusts, `config_comparison` says what may change in them without a question, and `config_editor` changes the
text of a file. `mcp_hosts` and `host_documents` translate servers
from and to other hosts; `bundles` and `registry_documents` read published descriptions of servers.
"""
