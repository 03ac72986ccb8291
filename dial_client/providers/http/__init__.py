"""HTTP requests to a model's endpoint: the transport, retry policy, response stream and errors that all APIs share."""
