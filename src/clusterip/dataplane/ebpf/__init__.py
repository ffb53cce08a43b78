"""eBPF mode: a socket that asks for a Service is given a backend, before there is a packet.

    piece = compile_entry(entry, config)                      # `layout` has the bytes
    load(pieces, seen), delta(changes)                        # steps, of which every prefix is safe
    outcomes(pieces, packet)                                  # what bpf/socket.bpf.c does with them; Passed: the rules'

The edge: `attach.Sockets` holds the maps and programs of a node, pinned; `layer.SocketLayer` keeps one family's entries
in them; `stale` ends connected datagram sockets whose backend went; `check` says whether this machine can do it at all.
`program` is what scripts/build-bpf made of bpf/socket.bpf.c.
"""
