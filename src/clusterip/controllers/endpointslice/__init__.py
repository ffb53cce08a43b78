"""EndpointSlices of Services with a selector: which pods, in which condition, packed into which slices."""
