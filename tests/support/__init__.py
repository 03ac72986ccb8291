"""What several tests share: servers, endpoints, browsers, stores, and data."""
