"""Where conversations are kept: in memory, or in a database that outlives the program."""
