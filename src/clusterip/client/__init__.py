"""List and watch against any Kubernetes API server; the Mirror of what it holds."""
