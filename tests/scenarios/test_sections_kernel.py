"""The kernel sections of the pages are loaded by the programs that people know, and leave what the proxy would have
written itself."""

import contextlib
from collections.abc import Iterator

import pytest
from tests.dataplane.nftables.model import meaning
from tests.scenarios.listing import first, path
from tests.scenarios.meaning import all_families, entries, iptables_config, nftables_config
from tests.scenarios.page import load, paths
from tests.spaces import fresh

from clusterip.dataplane import iptables, nftables
from clusterip.dataplane.iptables.compare import compare
from clusterip.dataplane.nftables import delta
from clusterip.dataplane.nftables.apply import Rules as Tables
from clusterip.kernel import iptables as kernel
from clusterip.kernel.iptables import VariantName
from clusterip.kernel.run import run
from clusterip.rulesets.nft import parse

pytestmark = pytest.mark.kernel

ALL = pytest.mark.parametrize("name", [path.stem for path in paths()])


@pytest.fixture(scope="module")
def netns() -> Iterator[str]:
    with fresh("sc") as name:
        yield name


@ALL
@pytest.mark.parametrize("variant", ["nft", "legacy"])
async def test_iptables_restore_loads_the_section(netns: str, variant: VariantName, name: str) -> None:
    page = load(name)
    for family in all_families(page.steps):
        config = iptables_config(page.steps[0].node, family)
        programs = await kernel.detect(family, variant, netns)
        text = first(path(page, "iptables").read_text(), family)
        await run((f"{programs.name}-restore", "-w"), stdin=text.encode(), netns=netns)
        pieces = [iptables.compile_entry(e, config) for e in entries(page.steps[0], family)]
        assert compare(await kernel.save(programs), pieces, config).differences == ()


@ALL
async def test_nft_loads_the_section(netns: str, name: str) -> None:
    """Its bytes need not be ours: `nft` has more than one way to say the same. What it then lists is."""
    page = load(name)
    for family in all_families(page.steps):
        config = nftables_config(page.steps[0].node, family)
        text = first(path(page, "nftables").read_text(), family)
        await run(("nft", "-f", "-"), stdin=f"flush ruleset\n{text}".encode(), netns=netns)
        loaded = await _listed(netns)
        await run(("nft", "flush", "ruleset"), netns=netns)
        book = nftables.Book.of(nftables.compile_entry(e, config) for e in entries(page.steps[0], family))
        with contextlib.closing(Tables(family, netns=netns)) as tables:
            await tables.load(delta.load(book, delta.Installed(), config))
        assert loaded == await _listed(netns)


async def _listed(netns: str) -> object:
    said = (await run(("nft", "-s", "list", "ruleset"), netns=netns)).stdout.decode()
    (table,) = parse.read(said).values
    return meaning(table)
