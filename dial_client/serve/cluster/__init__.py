"""Several processes over one database: they share turns, pending requests and handoffs through it."""
