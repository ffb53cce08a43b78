"""Which address and which port a Service gets: bands, pools, and the plan of a write. Pure."""
