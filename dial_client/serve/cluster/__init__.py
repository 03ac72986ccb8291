"""Several processes that use one database: they share turns, pending requests and handoffs through the database."""
