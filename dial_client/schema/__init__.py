"""JSON Schemas and JSON from models: schemas adapted for providers, arguments parsed and checked, GBNF."""
