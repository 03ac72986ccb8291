"""HTTP requests to a model's endpoint: transport, retry policy, response stream and errors, the same for every API."""
