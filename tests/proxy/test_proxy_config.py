from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.errors import BadInput
from clusterip.proxy import configfile, durations, gates, rules
from clusterip.proxy.config import API_VERSION, KIND, DetectLocal, ProxyConfig

HEAD = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"


def load(body: str) -> ProxyConfig:
    return rules.complete(configfile.read((HEAD + body).encode(), "proxy.yaml"), "proxy.yaml")


def refusal(body: str, head: str = HEAD) -> str:
    with pytest.raises(BadInput) as caught:
        rules.complete(configfile.read((head + body).encode(), "proxy.yaml"), "proxy.yaml")
    return caught.value.message


def test_an_empty_file_gives_kube_proxys_defaults_but_for_the_mode() -> None:
    config = load("")
    assert config.mode == "nftables"
    assert config.detect_local_mode == "ClusterCIDR"
    assert config.healthz_bind_address == "0.0.0.0:10256"
    assert config.metrics_bind_address == "127.0.0.1:10249"
    assert (str(config.iptables.sync_period), str(config.iptables.min_sync_period)) == ("30s", "1s")
    assert config.iptables.masquerade_bit == 14
    assert str(config.conntrack.tcp_established_timeout) == "24h0m0s"
    assert config.oom_score_adj == -999


def test_what_kubeadm_writes_means_the_defaults() -> None:
    written = load(
        """
bindAddress: 0.0.0.0
clientConnection: {acceptContentTypes: "", burst: 0, contentType: "", kubeconfig: /var/lib/k.conf, qps: 0}
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpBeLiberal: false, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null}
healthzBindAddress: ""
iptables: {localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: "", strictARP: false, syncPeriod: 0s}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}}, verbosity: 0}
mode: ""
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
winkernel: {enableDSR: false, networkName: ""}
"""
    )
    expected = msgspec.structs.replace(load("clusterCIDR: 10.244.0.0/16"), client_connection=written.client_connection)
    assert written == expected
    assert written.client_connection.qps == 5


def test_every_problem_is_told_at_once_with_its_field_and_what_is_allowed() -> None:
    said = refusal(
        "mode: nftables\niptables: {syncPeriod: 0, masqueradeBit: 40, colour: blue}\nhostnameOverride: [1]\n"
        "conntrack: none\nfeatureGates: {NFTablesProxyMode: 3}\nnodePortAddresses: [1]\n"
    )
    assert said.startswith("proxy.yaml: 5 things are wrong")
    assert "iptables.colour: no such field; there are localhostNodePorts, " in said
    assert "hostnameOverride: must be text, is a list" in said
    assert "conntrack: must be an object with fields, is 'none'" in said
    assert "featureGates.NFTablesProxyMode: must be true or false, is 3" in said
    assert "nodePortAddresses[0]: must be text, is 1" in said


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("mode: userspace", "mode: 'userspace' is not a proxy mode; available: iptables"),
        ("iptables: {masqueradeBit: 32}", "iptables.masqueradeBit: must be 0 to 31, is 32"),
        ("iptables: {syncPeriod: -1s}", "iptables.syncPeriod: must be greater than 0, is -1s"),
        ("iptables: {minSyncPeriod: -1s}", "iptables.minSyncPeriod: must not be less than 0, is -1s"),
        ("iptables: {minSyncPeriod: 1m}", "iptables.minSyncPeriod: must not be greater than syncPeriod (30s), is 1m0s"),
        ("iptables: {syncPeriod: 5 seconds}", "iptables.syncPeriod: '5 seconds' is not a duration"),
        ("iptables: {syncPeriod: 30}", "iptables.syncPeriod: must be a duration, such as 30s or 1m30s, is 30"),
        ("detectLocalMode: Magic", "must be one of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix"),
        ("detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface: must name the pods' bridge"),
        ("detectLocalMode: InterfaceNamePrefix", "detectLocal.interfaceNamePrefix: must say how"),
        ("detectLocal: {bridgeInterface: a b}", "must be an interface's name"),
        ("clusterCIDR: 10.244.0.0/33", "clusterCIDR: must be a CIDR or two"),
        ("clusterCIDR: '10.1.0.0/16,10.2.0.0/16'", "must be one CIDR, or one of IPv4 and one of IPv6"),
        ("nodePortAddresses: [primary, 10.0.0.0/8]", "nodePortAddresses[0]: must be a CIDR"),
        ("bindAddress: here", "bindAddress: must be an IP address, is 'here'"),
        ("healthzBindAddress: 0.0.0.0:70000", "healthzBindAddress: must be an IP address and a port"),
        ("metricsBindAddress: localhost", "metricsBindAddress: must be an IP address and a port"),
        ("oomScoreAdj: -1001", "oomScoreAdj: must be -1000 to 1000, is -1001"),
        ("conntrack: {min: -1}", "conntrack.min: must be 0 to"),
        ("conntrack: {udpTimeout: -1s}", "conntrack.udpTimeout: must not be less than 0, is -1s"),
        ("configSyncPeriod: -1s", "configSyncPeriod: must be greater than 0"),
        ("clientConnection: {burst: -5}", "clientConnection.burst: must be 0 to"),
        ("featureGates: {Nonsense: true}", "featureGates.Nonsense: no such feature gate; there are AllAlpha"),
        ("featureGates: {NFTablesProxyMode: false}", "featureGates.NFTablesProxyMode: is locked to true"),
        ("ipvs: {excludeCIDRs: [x]}", "ipvs.excludeCIDRs[0]: must be a CIDR, is 'x'"),
        ("mode: iptables\nmode: iptables", "'mode' is given twice"),
        ("iptables: {syncPeriod: 1s, syncPeriod: 2s}", "'syncPeriod' is given twice"),
        ("a: [", "proxy.yaml: is not YAML"),
        ("oomScoreAdj: true", "oomScoreAdj: must be a whole number, is true"),
    ],
)
def test_a_value_that_cannot_be_is_refused(body: str, what: str) -> None:
    assert what in refusal(body)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"kind: Pod\n", b"[" * 100_000, b"{: 1}", b"? [a]\n: b"])
def test_what_is_no_configuration_is_refused(content: bytes) -> None:
    with pytest.raises(BadInput, match=r"proxy\.yaml"):
        configfile.read(content, "proxy.yaml")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_configuration_or_one_clear_error(content: bytes) -> None:
    with pytest.raises(BadInput):
        configfile.read(content, "proxy.yaml")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2)
    )
)
def test_any_value_in_any_place_gives_a_configuration_or_one_clear_error(value: object) -> None:
    for name in [f.encode_name for f in msgspec.structs.fields(ProxyConfig)]:
        with suppress(BadInput):  # anything else is a failure
            load(f"{name}: {msgspec.json.encode(value).decode()}")


def test_an_ipv6_bind_address_moves_the_servers_to_ipv6() -> None:
    config = load('bindAddress: "::"')
    assert (config.healthz_bind_address, config.metrics_bind_address) == ("[::]:10256", "[::1]:10249")
    assert rules.primary_family(config) == "IPv6"


def test_a_missing_port_is_appended() -> None:
    config = load("healthzBindAddress: 127.0.0.1\nmetricsBindAddress: '::'")
    assert (config.healthz_bind_address, config.metrics_bind_address) == ("127.0.0.1:10256", "[::]:10249")


def test_what_is_written_reads_back_as_the_same() -> None:
    config = load(
        "clusterCIDR: 10.244.0.0/16,fd00:1::/48\nfeatureGates: {AllAlpha: true}\nnodePortAddresses: [primary]"
    )
    assert rules.complete(configfile.read(configfile.write(config).encode(), "again"), "again") == config
    assert rules.cluster_cidr(config, "IPv6") == "fd00:1::/48"


def test_the_documented_defaults_are_all_written() -> None:
    text = configfile.write(load(""))
    for line in ("tcpEstablishedTimeout: 24h0m0s", "configSyncPeriod: 15m0s", "strictARP: false", "clusterCIDR: ''"):
        assert line in text


@pytest.mark.parametrize(("cores", "expected"), [(1, 131072), (8, 262144), (64, 1048576)])
def test_the_connection_table_grows_with_the_cores_up_to_a_cap(cores: int, expected: int) -> None:
    assert rules.conntrack_max(load(""), cores) == expected
    assert rules.conntrack_max(load("conntrack: {maxPerCore: 0}"), cores) == 0


def test_all_alpha_gates_are_switched_on_together() -> None:
    assert gates.settings({"AllAlpha": True})["ComponentFlagz"]
    assert not gates.settings({"AllAlpha": True, "ComponentFlagz": False})["ComponentFlagz"]


@pytest.mark.parametrize(
    ("words", "seconds", "again"),
    [
        ("30s", 30, "30s"),
        ("1h", 3600, "1h0m0s"),
        ("1.5h", 5400, "1h30m0s"),
        ("1h0m0.25s", 3600.25, "1h0m0.25s"),
        ("250ms", 0.25, "250ms"),
        ("1500us", 0.0015, "1.5ms"),
        ("-2m", -120, "-2m0s"),
        ("0", 0, "0s"),
    ],
)
def test_durations_read_and_write_as_in_go(words: str, seconds: float, again: str) -> None:
    assert durations.parse(words) == seconds
    assert str(durations.parse(words)) == again


@pytest.mark.parametrize("words", ["", "30", "s", "1 s", "1d", "--1s", "1s ", "1.2.3s"])
def test_what_is_no_duration_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse(words)


@given(st.integers(-(10**11), 10**11))
def test_a_duration_in_milliseconds_survives_its_text(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert durations.parse(durations.text(seconds)) == pytest.approx(seconds, abs=1e-6)


def test_a_detector_may_be_an_interface() -> None:
    config = load("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cip0}")
    assert config.detect_local == DetectLocal(bridge_interface="cip0")
