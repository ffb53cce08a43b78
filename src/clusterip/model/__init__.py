"""API kinds: what they are, how they are read, completed, checked, selected, patched and shown. Pure.

Two forms of one object exist, on purpose (docs/decisions/0001-two-forms-of-an-object.md):

- `Object`, the JSON document itself, is what the API server keeps: no field is lost, known to us or not;
- the frozen values of `objects` are what everybody else reads: only the fields this product uses, typed.
"""
