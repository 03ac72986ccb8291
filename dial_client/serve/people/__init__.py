"""Who sends a request, what the person may use, and what the person has given to the service."""
