"""Rulesets as values: text <-> parse, the order of hooks. Pure."""
