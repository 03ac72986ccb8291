"""JSON Schemas and JSON from models: adaptation of schemas for providers, parsing and checks of arguments, GBNF."""
