"""Unit tests: they start no process, open no connection and import no vendor SDK (enforced by `conftest`)."""
