"""Stores of conversations: in memory, or in a database that outlives the program."""
