"""iptables mode: the chains people know, to the letter."""
