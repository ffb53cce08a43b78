"""A cluster of several nodes on one machine, in network namespaces."""
