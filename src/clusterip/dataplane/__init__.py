"""Service table to kernel program: `compile` and `delta` are pure, `apply` and `observe` touch the kernel."""
