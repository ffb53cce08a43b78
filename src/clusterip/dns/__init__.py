"""The name server of the cluster."""
