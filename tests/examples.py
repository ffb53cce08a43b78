"""How many examples a property test draws that costs more, or less, than most."""

from hypothesis import settings

MANY = 200  # of most tests, in `make test`


def share(of_many: int) -> int:
    """`of_many` in `make test`, and less in the same measure where CLUSTERIP_EXAMPLES asks for fewer; never below 3."""
    return max(3, of_many * settings().max_examples // MANY)
