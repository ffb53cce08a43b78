"""The way of a packet through the kernel's hooks: every branch taken, with its exact probability."""
