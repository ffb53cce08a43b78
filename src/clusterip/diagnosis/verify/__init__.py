"""The kernel's program against the service table, over all packets: equal, or a witness. Pure."""
