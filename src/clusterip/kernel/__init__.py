"""The only room that touches the operating system: namespaces, netlink, programs, sysctls, processes."""
