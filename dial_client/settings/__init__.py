"""What a servers.json says: its `entries`, with `oauth`, read by `jsonfile` and `variables`."""
