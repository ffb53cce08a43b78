"""The law of every dataplane: a packet goes where the specification says, whoever sends it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.modes import MODES, Mode
from tests.dataplane.strategies import V4, V6, Pool, hosts, packets, tables
from tests.services.strategies import resolved

from clusterip.services.table import Entry

both_families = pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)


@both_families
@every_mode
@given(data=st.data())
def test_a_packet_goes_where_the_specification_says(mode: Mode, pool: Pool, data: st.DataObject) -> None:
    hold(mode, pool, list(data.draw(tables(pool)).values()), data)


@both_families
@every_mode
@given(data=st.data())
def test_whatever_slices_say_of_health_place_and_hints(mode: Mode, pool: Pool, data: st.DataObject) -> None:
    hold(mode, pool, data.draw(resolved(pool)), data)


def hold(mode: Mode, pool: Pool, table: Sequence[Entry], data: st.DataObject) -> None:
    host = data.draw(hosts(pool))
    plane, where = data.draw(mode.setup(pool, host))
    pieces = [plane.compile(entry) for entry in table]
    for packet in data.draw(st.lists(packets(pool, host, table), min_size=1, max_size=4)):
        sent = mode.sent(packet, host) if data.draw(st.booleans()) else packet
        assert plane.outcomes(pieces, sent) == mode.expected(table, sent, where)
