"""Walks the road of a packet on a real cluster, and shows at each step what it found just then.

A step is a function that takes the `Stage` and yields values: sentences, evidence, claims. It knows no terminal, so
steps can be tested, and pages can be made, from the same values. `reading` is pure; `dial` and `stage` touch the
cluster; `script` is the order of the steps.
"""
