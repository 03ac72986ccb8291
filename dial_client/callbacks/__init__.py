"""Questions to the embedding program or the person: approvals, elicitation, sampling, roots, logs and OAuth logins."""
