"""The service table: what this node should do for each Service port. Pure.

Which backends count is decided here, in `resolve`, and nowhere else; `route` is the specification every
dataplane is held against.
"""
