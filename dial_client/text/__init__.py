"""Text from servers, models and files: made safe to print, and split into comparable words."""
