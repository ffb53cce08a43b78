"""Deployments: ReplicaSets of successive templates, and the walk from one to the next."""
