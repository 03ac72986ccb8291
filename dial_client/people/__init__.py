"""What is asked of people: `questions` of servers, `elicitation` with its forms, and `login`."""
