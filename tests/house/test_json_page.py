"""docs/json.md names every field and word of the answers, so scripts can rely on it."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from clusterip.diagnosis.answer import Outcome, Step, Trace, Verdict
from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.verify.report import Difference, Kind, Unproven, Verification, Witness

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
ANSWERS = [Trace, Step, Outcome, Packet, Verification, Difference, Unproven, Witness]


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_field_is_described(answer: type[msgspec.Struct]) -> None:
    fields = [field.encode_name for field in msgspec.structs.fields(answer)]
    assert not [name for name in fields if f"`{name}`" not in PAGE and f"`{name}[]`" not in PAGE]


@pytest.mark.parametrize("word", [*get_args(Verdict), *get_args(Kind)])
def test_every_word_is_described(word: str) -> None:
    assert f"`{word}`" in PAGE
