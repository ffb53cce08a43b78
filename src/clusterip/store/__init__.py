"""Versioned keys: get, list, commit, watch. Knows no Kubernetes."""
