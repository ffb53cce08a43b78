"""Controllers: each a pure `plan(view) -> writes`, run by one shared loop."""
