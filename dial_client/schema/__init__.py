"""JSON Schemas and JSON from models: schemas adapted for providers, tool arguments, repaired JSON, GBNF grammars."""
