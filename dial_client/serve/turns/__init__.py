"""The turns of this process and of its peers, and what they ask persons: approvals and elicitations."""
