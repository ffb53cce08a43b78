"""The API server: requests in, responses out; one write is one revision."""
