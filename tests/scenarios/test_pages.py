"""Each page holds for each dataplane: its answers, its kernel sections, and the way from step to step."""

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.scenarios import deltas, listing, meaning
from tests.scenarios.members import family_of
from tests.scenarios.page import DATAPLANES, PAGES, load, paths
from tests.scenarios.proxies import configuration, node_document

from clusterip.kernel.iptables import Programs
from clusterip.model.objects import Node
from clusterip.proxy import build

NAMES = [path.stem for path in paths()]
ALL = pytest.mark.parametrize("name", NAMES)
EACH = pytest.mark.parametrize("dataplane", DATAPLANES)


@ALL
@EACH
def test_each_packet_meets_what_the_page_says(name: str, dataplane: str) -> None:
    for step in load(name).steps:
        for line in step.lines:
            if line.goes_on:  # what was opened earlier is not decided by the rules of now
                continue
            wanted = line.answer_in(dataplane)
            for client, to in line.sent():
                sent = meaning.packet(client, to, step.node)
                family = family_of(to.address)
                found = meaning.answer(meaning.outcomes(dataplane, step, sent, family), sent, step, family)
                assert (found.kind, found.backends) == (wanted.kind, wanted.backends), (
                    f"{name}.md:{line.number}: {client} -> {to}: the page says {wanted}, {dataplane} says {found}"
                )


@ALL
def test_the_specification_says_what_the_page_says(name: str) -> None:
    for step in load(name).steps:
        for line in step.lines:
            for client, to in line.sent() if not line.goes_on else ():
                sent = meaning.packet(client, to, step.node)
                family = family_of(to.address)
                found = meaning.answer(meaning.specified(step, sent, family), sent, step, family)
                assert (found.kind, found.backends) == (line.answer.kind, line.answer.backends), (
                    f"{name}.md:{line.number}: {client} -> {to}: the page says {line.answer}, the specification {found}"
                )


@ALL
@EACH
def test_changes_lead_to_what_a_fresh_load_writes(name: str, dataplane: str) -> None:
    page = load(name)
    for family in page.families:
        deltas.walk(dataplane, page.steps, family)


@ALL
@EACH
def test_the_kernel_section_is_what_is_written(name: str, dataplane: str) -> None:
    page = load(name)
    path, text = listing.path(page, dataplane), listing.section(page, dataplane)
    if os.environ.get(listing.UPDATE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} of {name} is missing: run this with {listing.UPDATE}=1 and look at it"
    assert path.read_text() == text, f"{name}/{path.name}: if it should change, run this with {listing.UPDATE}=1"


def test_every_kernel_section_belongs_to_a_page() -> None:
    wanted = {listing.path(load(name), dataplane) for name in NAMES for dataplane in DATAPLANES}
    assert set(PAGES.glob("*/*")) <= wanted


@ALL
@EACH
def test_the_proxy_is_configured_as_the_page_says(name: str, dataplane: str) -> None:
    """What is settled only at a load, from what the machine has, is left out."""
    page = load(name)
    node = page.steps[0].node
    config = configuration(dataplane, node, Path(), Path())
    machine = build.Machine(msgspec.convert(node_document(node), Node), (), (), liberal=False)
    for family in page.families:
        programs = Programs(family, "nft", (1, 8, 9), "iptables")
        match dataplane:
            case "iptables":
                chains = replace(meaning.iptables_config(node, family), node_port_addresses=None)
                assert build.rule_config(config, machine, programs) == chains
            case "ipvs":
                servers = replace(meaning.ipvs_config(node, family), node_addresses=(), host_addresses=frozenset())
                assert build.server_config(config, machine, programs) == servers
            case _:
                tables = replace(meaning.nftables_config(node, family), node_port_addresses=None, service_cidrs=())
                assert build.table_config(config, machine, family) == tables
