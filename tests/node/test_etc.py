import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.model.objects import DNSConfig, HostAlias, ObjectMeta, Pod, PodSpec
from clusterip.node import etc
from clusterip.node.etc import Resolver

OF_HOST = Resolver(("192.0.2.1",), ("corp.example",), ("timeout:1",))
OURS = ("shop.svc.cluster.local", "svc.cluster.local", "cluster.local")


def pod(**spec: object) -> Pod:
    return Pod(metadata=ObjectMeta(name="web-0", namespace="shop"), spec=PodSpec(**spec))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Resolver(("10.96.0.10",), (*OURS, "corp.example"), ("ndots:5",))),
        ({"dns_policy": ""}, Resolver(("10.96.0.10",), (*OURS, "corp.example"), ("ndots:5",))),
        ({"host_network": True}, OF_HOST),
        (
            {"host_network": True, "dns_policy": "ClusterFirstWithHostNet"},
            Resolver(("10.96.0.10",), (*OURS, "corp.example"), ("ndots:5",)),
        ),
        ({"dns_policy": "Default"}, OF_HOST),
        ({"dns_policy": "None"}, Resolver()),
        (
            {"dns_policy": "None", "dns_config": DNSConfig(nameservers=("192.0.2.9",), searches=("a.example",))},
            Resolver(("192.0.2.9",), ("a.example",)),
        ),
        (
            {"dns_config": DNSConfig(options=({"name": "ndots", "value": "2"}, {"name": "edns0"}))},
            Resolver(("10.96.0.10",), (*OURS, "corp.example"), ("ndots:2", "edns0")),
        ),
        (
            {"dns_policy": "None", "dns_config": DNSConfig(nameservers=("a", "a", "b", "c", "d"))},
            Resolver(("a", "b", "c")),
        ),
    ],
)
def test_the_policy_and_the_config_make_the_resolver(spec: dict[str, object], expected: Resolver) -> None:
    assert etc.resolver(pod(**spec), ("10.96.0.10",), "cluster.local", OF_HOST) == expected


words = st.text("abcdefghij.:0123456789-", min_size=1, max_size=12)


@given(st.lists(words), st.lists(words), st.lists(words))
def test_what_is_written_is_read(nameservers: list[str], searches: list[str], options: list[str]) -> None:
    resolver = Resolver(tuple(nameservers), tuple(searches), tuple(options))
    assert etc.parse(etc.text(resolver)) == resolver


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    etc.parse(text)


def test_hosts_name_the_pod_and_its_aliases() -> None:
    aliases = (HostAlias("192.0.2.7", ("db", "db.example")),)
    lines = etc.hosts(pod(host_aliases=aliases), ("10.244.1.7", "fd00:1:1::7"), "cluster.local", "").split("\n")
    assert lines[0] == "127.0.0.1 localhost"
    assert lines[-4:] == ["10.244.1.7 web-0", "fd00:1:1::7 web-0", "192.0.2.7 db db.example", ""]


def test_a_pod_with_a_subdomain_is_named_in_full_first() -> None:
    text = etc.hosts(pod(hostname="zero", subdomain="web"), ("10.244.1.7",), "cluster.local", "")
    assert "10.244.1.7 zero.web.shop.svc.cluster.local zero\n" in text


def test_a_host_network_pod_keeps_the_file_of_its_host() -> None:
    aliases = (HostAlias("192.0.2.7", ("db",)),)
    text = etc.hosts(
        pod(host_network=True, host_aliases=aliases), ("192.168.50.11",), "cluster.local", "127.0.0.1 here\n\n"
    )
    assert text == "127.0.0.1 here\n192.0.2.7 db\n"


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "web-0"),
        ({"hostname": "zero"}, "zero"),
        ({"hostname": "a" * 62 + "-b"}, "a" * 62),
        ({"host_network": True}, "node-1"),
    ],
)
def test_a_hostname_is_a_label(spec: dict[str, object], name: str) -> None:
    assert etc.hostname(pod(**spec), "node-1") == name
