"""What the commands ``config`` and ``init`` do: show the configuration in use, change a file, write the first one."""
