"""Tests of single modules: no process, no network, no SDK; see `conftest`."""
