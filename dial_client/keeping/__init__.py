"""How `dial_client.conversations` keeps what is said: `live_turn` runs, `keeper` stores, `exporting` gives it away."""
