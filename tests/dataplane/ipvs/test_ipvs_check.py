"""The start check of IPVS mode, where what it needs is missing: one sentence, and the mode to use instead."""

import stat
from pathlib import Path

import pytest

from clusterip.dataplane.ipvs.apply import check, settings
from clusterip.errors import Unavailable
from clusterip.kernel import ipset
from clusterip.kernel.ipvs import IPVS


def program(directory: Path, text: str) -> str:
    """A PATH on which `ipset` is a program of ours."""
    path = directory / "ipset"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(directory)


async def test_a_machine_without_ipset_is_told_which_mode_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable) as told:
        await check("rr")
    assert told.value.message == "ipset: no such program"
    assert "--proxy-mode nftables" in told.value.hint


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("echo 'ipset v5.9, protocol version: 4'", "version 5.9 is too old"),
        ("echo hello", "does not say its version"),
        ("echo 'ipset v7.1: Cannot open session to kernel.' >&2; exit 1", "Cannot open session to kernel"),
    ],
)
async def test_an_ipset_that_will_not_do_is_told_why(
    said: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", program(tmp_path, said))
    with pytest.raises(Unavailable, match=why):
        await check("rr")


async def test_who_may_not_use_ipset_is_told_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "echo 'ipset v7.17: Kernel error received: Operation not permitted' >&2; exit 1"
    monkeypatch.setenv("PATH", program(tmp_path, said))
    with pytest.raises(Unavailable) as told:
        await check("rr")
    assert told.value.message == "ipset: v7.17: Kernel error received: Operation not permitted"
    assert "CAP_NET_ADMIN" in told.value.hint


async def test_an_ipset_of_today_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", program(tmp_path, "echo 'ipset v7.17, protocol version: 7'"))
    assert await ipset.version() == (7, 17)


@pytest.mark.kernel
def test_a_kernel_without_ipvs_is_told_so_and_which_mode_needs_none() -> None:
    """Whichever kernel this is: it has IPVS, or the sentence says that it has none."""
    try:
        with IPVS():
            said, hint = "", ""
    except Unavailable as error:
        said, hint = error.message, error.hint
    listed = Path("/proc/net/ip_vs").exists()
    assert said == ("" if listed else "IPVS: this kernel has none, and no module ip_vs to load")
    assert ("--proxy-mode nftables" in hint) is not listed


def test_port_reuse_is_switched_off_only_where_the_kernel_is_slow_with_it() -> None:
    mode = "net.ipv4.vs.conn_reuse_mode"
    assert [mode in settings(strict_arp=False, kernel=k) for k in ((4, 0), (4, 1), (5, 8), (5, 9), (6, 1))] == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_strict_arp_keeps_the_node_silent_about_addresses_of_services() -> None:
    arp = {"net.ipv4.conf.all.arp_ignore": "1", "net.ipv4.conf.all.arp_announce": "2"}
    assert settings(strict_arp=True, kernel=(6, 1)).items() - settings(strict_arp=False, kernel=(6, 1)).items() == set(
        arp.items()
    )
