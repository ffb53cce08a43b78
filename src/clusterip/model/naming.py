"""Names the server makes up: `generateName` and five random characters that the caller draws."""

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels and no look-alikes: no words, no misreading
SUFFIX_LENGTH = 5
_LONGEST = 63


def generated(prefix: str, suffix: str) -> str:
    """The name for `prefix`, cut so that the whole is a DNS label. `suffix`: SUFFIX_LENGTH characters of ALPHABET."""
    return prefix[: _LONGEST - len(suffix)] + suffix
