"""Several processes that serve over one database: their turns, pending requests and handoffs, shared through it."""
