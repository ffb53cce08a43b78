from hypothesis import given
from hypothesis import strategies as st

from clusterip.model import names, naming


@given(
    prefix=st.from_regex(r"[a-z]([a-z0-9-]{0,80}[a-z0-9])?-?", fullmatch=True),
    suffix=st.text(naming.ALPHABET, min_size=5, max_size=5),
)
def test_a_generated_name_is_a_dns_label_that_begins_as_asked(prefix: str, suffix: str) -> None:
    name = naming.generated(prefix, suffix)
    assert names.dns_label(name) == ""
    assert name.startswith(prefix[:58])
    assert name.endswith(suffix)
