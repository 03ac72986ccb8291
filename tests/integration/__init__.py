"""Tests against real servers, databases and endpoints on loopback; the client runs in the process of the tests."""
