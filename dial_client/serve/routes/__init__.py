"""The HTTP API of the service's own page: conversations, servers, features, grants, shares, credentials and usage."""
