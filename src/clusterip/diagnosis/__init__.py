"""Where a packet goes, whether the kernel holds what the API says, what is wrong. Pure."""
