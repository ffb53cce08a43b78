"""Both families at once: what the API gives a Service, and what becomes of packets to each of its addresses.

D-numbers are rows of the table of dual stack rules, each on a cluster that has both families.
"""

import json
import subprocess
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from .conftest import MANIFEST, Cluster, program, until

pytestmark = pytest.mark.e2e

NODES = ("node-1", "node-2", "node-3")

# argv[1]: [[protocol, address, port, words, how often]...]; prints a list of answers for each. One that did not come is
# an errno's name and the milliseconds it took.
ASK = """
import errno, json, socket, sys, time

def ask(protocol, address, port, words):
    ipv6, udp = ":" in address, protocol == "UDP"
    family, kind = socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM
    with socket.socket(family, kind) as s:
        s.settimeout(3)
        if ipv6 and not udp:
            s.setsockopt(socket.IPPROTO_IPV6, 25, 1)  # IPV6_RECVERR: an error is told when it comes
        start = time.perf_counter()
        try:
            s.connect((address, port))
            if udp:
                try:
                    s.send(words.encode())
                except PermissionError:
                    pass  # of a rule that refuses: why, says the next call
                return s.recv(200).decode().strip()
            s.sendall(f"GET /{words} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n".encode())
            return b"".join(iter(lambda: s.recv(4096), b"")).rpartition(b"\\r\\n\\r\\n")[2].decode().strip()
        except TimeoutError:
            what = "timeout"
        except OSError as error:
            what = errno.errorcode[error.errno]
        return [what, (time.perf_counter() - start) * 1000]

print(json.dumps([[ask(*how) for _ in range(count)] for *how, count in json.loads(sys.argv[1])]))
"""

Try = tuple[str, str, int, str, int]


def ask(cluster: Cluster, target: str, *tries: Try) -> list[list[Any]]:
    found: list[list[Any]] = cluster.python(target, ASK, json.dumps(tries))
    return found


def is_ipv6(address: str) -> bool:
    return ":" in address


def host_of(client: str) -> str:
    """ "10.244.1.7:40312" -> "10.244.1.7"; "[fd00:1:1::7]:40312" -> "fd00:1:1::7"."""
    return client.rpartition(":")[0].strip("[]")


@dataclass(frozen=True, slots=True)
class App:
    """Two echo servers behind a NodePort Service of both families."""

    namespace: str
    addresses: tuple[str, str]
    node_ports: dict[str, int]  # by protocol
    pods: dict[str, Any]  # their documents, by name


SERVICES = """
---
apiVersion: v1
kind: Service
metadata: {name: both}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: app}
  ports: &ports
  - {name: http, port: 80, targetPort: 8080}
  - {name: udp, port: 80, targetPort: 8080, protocol: UDP}
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec:
  ipFamilyPolicy: PreferDualStack
  sessionAffinity: ClientIP
  selector: {app: app}
  ports: *ports
---
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, ipFamilyPolicy: PreferDualStack, selector: {app: app}, ports: *ports}
---
apiVersion: v1
kind: Service
metadata: {name: half}
spec: {ipFamilyPolicy: RequireDualStack, ports: *ports}
---
apiVersion: v1
kind: Service
metadata: {name: moving}
spec: {ipFamilies: [IPv6], ports: *ports}
"""


@pytest.fixture(scope="module")
def app(cluster: Cluster) -> Iterator[App]:
    namespace = f"n-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", namespace)
    documents = MANIFEST.format(name="app", replicas=2) + SERVICES.replace("*ports", PORTS).replace("&ports", "")
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=documents)
    cluster.kubectl("rollout", "status", "-n", namespace, "deployment/app", "--timeout=60s")
    until(lambda: len(cluster.ready(namespace, "both")) == 4)
    service, sticky = (cluster.get("service", name, "-n", namespace) for name in ("both", "sticky"))
    pods = cluster.get("pods", "-n", namespace, "-l", "app=app")["items"]
    made = App(
        namespace,
        tuple(service["spec"]["clusterIPs"]),
        {port["protocol"]: port["nodePort"] for port in service["spec"]["ports"]},
        {pod["metadata"]["name"]: pod for pod in pods},
    )
    addresses = (*made.addresses, *sticky["spec"]["clusterIPs"])
    tries = [(protocol, address, 80, "hostname", 1) for address in addresses for protocol in ("TCP", "UDP")]
    for node in NODES:
        until(partial(_all_answer, cluster, node, made.pods, tries))
    yield made
    # Waited for: Services without endpoints are what other tests, of the doctor, would find.
    cluster.kubectl("delete", "namespace", namespace, "--timeout=90s")


def _all_answer(cluster: Cluster, target: str, pods: Collection[str], tries: Iterable[Try]) -> bool:
    return all(one in pods for answers in ask(cluster, target, *tries) for one in map(str, answers))


PORTS = "[{name: http, port: 80, targetPort: 8080}, {name: udp, port: 80, targetPort: 8080, protocol: UDP}]"


def test_nodes_and_pods_have_an_address_of_each_family(cluster: Cluster, app: App) -> None:
    for number, node in enumerate(cluster.get("nodes")["items"], start=1):
        internal = [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"]
        assert internal == [f"192.168.50.{10 + number}", f"fd00:50::{10 + number}"]
        assert node["spec"]["podCIDRs"] == [f"10.244.{number}.0/24", f"fd00:1:{number}::/64"]
    for pod in app.pods.values():
        number, status = pod["spec"]["nodeName"].removeprefix("node-"), pod["status"]
        first, second = [ip["ip"] for ip in status["podIPs"]]
        assert (status["podIP"], status["hostIP"]) == (first, status["hostIPs"][0]["ip"])
        assert (first.startswith(f"10.244.{number}."), second.startswith(f"fd00:1:{number}::")) == (True, True)
        assert [ip["ip"] for ip in status["hostIPs"]] == [
            f"192.168.50.{10 + int(number)}",
            f"fd00:50::{10 + int(number)}",
        ]


def test_each_family_has_slices_of_its_own_and_the_node_port_is_shared(cluster: Cluster, app: App) -> None:
    items = cluster.get("endpointslices", "-n", app.namespace, "-l", "kubernetes.io/service-name=both")["items"]
    by_type = {item["addressType"]: {a for e in item["endpoints"] for a in e["addresses"]} for item in items}
    ips = [ip["ip"] for pod in app.pods.values() for ip in pod["status"]["podIPs"]]
    assert by_type == {"IPv4": {ip for ip in ips if not is_ipv6(ip)}, "IPv6": {ip for ip in ips if is_ipv6(ip)}}
    assert [is_ipv6(address) for address in app.addresses] == [False, True]
    assert len(set(app.node_ports.values())) == 1


@pytest.mark.parametrize("client", ["pod", "node", "backend"])
def test_every_client_reaches_all_backends_by_both_addresses(cluster: Cluster, app: App, client: str) -> None:
    target = {"pod": "client", "node": "node-2", "backend": f"{app.namespace}/{next(iter(app.pods))}"}[client]
    tries = [(protocol, address, 80, "hostname", 40) for address in app.addresses for protocol in ("TCP", "UDP")]
    for tried, answers in zip(tries, ask(cluster, target, *tries), strict=True):
        # The chance that one of two backends is never drawn in 40 is below 1e-11.
        assert {str(answer) for answer in answers} == set(app.pods), tried


def test_connections_to_the_ipv6_address_spread_evenly(cluster: Cluster, app: App) -> None:
    ((answers),) = ask(cluster, "client", ("TCP", app.addresses[1], 80, "hostname", 1000))
    counts = Counter(answers)
    assert set(counts) == set(app.pods)
    assert sum((n - 500) ** 2 / 500 for n in counts.values()) < 10.828, f"1 degree of freedom, p = 0.001: {counts}"


def test_a_pods_address_is_kept_and_a_nodes_is_one_of_its_own(cluster: Cluster, app: App) -> None:
    tries = [("TCP", address, 80, "clientip", 1) for address in app.addresses]
    pod = cluster.get("pod", "client")
    seen = [host_of(client) for (client,) in ask(cluster, "client", *tries)]
    assert seen == [ip["ip"] for ip in pod["status"]["podIPs"]]
    seen = [host_of(client) for (client,) in ask(cluster, "node-1", *tries)]
    # The fabric's address to another node's pod, the bridge's to one of its own.
    assert seen[0] in ("192.168.50.11", "10.244.1.1")
    assert seen[1] in ("fd00:50::11", "fd00:1:1::1")


def test_a_node_port_answers_on_each_nodes_addresses_of_both_families(cluster: Cluster, app: App) -> None:
    tries = [
        (protocol, address, port, "hostname", 1)
        for number in (11, 12, 13)
        for address in (f"192.168.50.{number}", f"fd00:50::{number}")
        for protocol, port in app.node_ports.items()
    ]
    for target in ("client", "node-3"):
        for tried, answers in zip(tries, ask(cluster, target, *tries), strict=True):
            assert str(answers[0]) in app.pods, f"{target}: {tried}: {answers}"


def test_affinity_holds_in_each_family(cluster: Cluster, app: App) -> None:
    addresses = cluster.get("service", "sticky", "-n", app.namespace)["spec"]["clusterIPs"]
    assert [is_ipv6(address) for address in addresses] == [False, True]
    for target in ("client", "node-2"):
        for answers in ask(cluster, target, *(("TCP", address, 80, "hostname", 25) for address in addresses)):
            # Without affinity the chance of this is 6e-8.
            assert len(set(map(str, answers))) == 1
            assert str(answers[0]) in app.pods


def test_names_lead_to_both_addresses_and_back(cluster: Cluster, app: App) -> None:
    zone = f"{app.namespace}.svc.cluster.local"
    server = cluster.get("service", "kube-dns", "-n", "kube-system")["spec"]["clusterIPs"]
    assert server == ["10.96.0.10", "fd00:96::a"]
    assert cluster.exec("client", "cat", "/etc/resolv.conf").split().count("nameserver") == 2
    for at in server:
        questions = [f"both.{zone} A", f"both.{zone} AAAA", f"-x {app.addresses[1]}", f"headless.{zone} AAAA"]
        words = [word for question in questions for word in ("+short", f"@{at}", *question.split())]
        found = cluster.exec("client", "dig", *words).split()
        ips = {ip["ip"] for pod in app.pods.values() for ip in pod["status"]["podIPs"] if is_ipv6(ip["ip"])}
        assert found[:3] == [*app.addresses, f"both.{zone}."]
        assert set(found[3:]) == ips


def test_a_family_without_endpoints_is_refused_at_once_and_the_other_answers(cluster: Cluster, app: App) -> None:
    """A Service without a selector gets a slice of one family by hand, then one of the other."""
    addresses = cluster.get("service", "half", "-n", app.namespace)["spec"]["clusterIPs"]
    pod = next(iter(app.pods.values()))
    first, second = [ip["ip"] for ip in pod["status"]["podIPs"]]
    _make_slice(cluster, app.namespace, "IPv4", first)
    tries = [(protocol, address, 80, "hostname", 3) for address in addresses for protocol in ("TCP", "UDP")]
    name = pod["metadata"]["name"]
    for target in ("client", "node-1"):
        for refused in until(partial(_served, cluster, target, tries, name, 2))[2:]:
            assert {what for what, _ in refused} == {"ECONNREFUSED"}
            # Of TCP: before the client would ask again, which is after a second.
            assert min(took for _, took in refused) < 900, f"{target}: {refused}"
    _make_slice(cluster, app.namespace, "IPv6", second)
    for target in ("client", "node-1"):
        until(partial(_served, cluster, target, tries, name, 4))


# One socket asks argv[1]:80 on and on, and prints who answers when that changes; until it has, or for a minute. In eBPF
# mode it is ended with its backend, and connects again.
ASK_ON = """
import socket, sys, time
seen, end, peer = [], time.monotonic() + 60, (sys.argv[1], 80)
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(("", 45006)); s.settimeout(0.3); s.connect(peer)
while time.monotonic() < end and len(seen) < 2:
    try:
        s.send(b"hostname"); who = s.recv(200).decode().strip()
    except TimeoutError:
        continue
    except OSError:
        s.connect(peer); continue
    if who not in seen:
        seen.append(who); print(who, flush=True)
    time.sleep(0.1)
"""


def test_an_ipv6_flow_of_datagrams_moves_when_its_backend_goes(cluster: Cluster, app: App) -> None:
    address = cluster.get("service", "moving", "-n", app.namespace)["spec"]["clusterIP"]
    first, second = [pod["status"]["podIPs"][1]["ip"] for pod in app.pods.values()]
    _make_slice(cluster, app.namespace, "IPv6", first, service="moving")
    until(partial(_all_answer, cluster, "client", app.pods, [("UDP", address, 80, "hostname", 1)]))
    argv = [program("clusterip"), "exec", "--name", cluster.name, "client", "--", "python3", "-c", ASK_ON, address]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        seen = [running.stdout.readline().strip()]
        patch = json.dumps([{"op": "replace", "path": "/endpoints/0/addresses/0", "value": second}])
        cluster.kubectl("patch", "-n", app.namespace, "endpointslice/moving-ipv6", "--type=json", "-p", patch)
        seen.append(running.stdout.readline().strip())
    assert seen == list(app.pods)


def _make_slice(cluster: Cluster, namespace: str, family: str, address: str, service: str = "half") -> None:
    document = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{service}-{family.lower()}", "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": "http", "port": 8080}, {"name": "udp", "port": 8080, "protocol": "UDP"}],
    }
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(document))


def _served(cluster: Cluster, target: str, tries: Iterable[Try], pod: str, count: int) -> list[list[Any]] | None:
    """The answers, if just those to the first so many tries came, from `pod`."""
    answers = ask(cluster, target, *tries)
    came = [all(answer == pod for answer in found) for found in answers]
    return answers if came == [number < count for number in range(len(answers))] else None


# D-number -> spec of a Service, and the policy, the families and how many addresses it is given
GIVEN: dict[str, tuple[dict[str, Any], tuple[str, list[str], int]]] = {
    "d1": ({}, ("SingleStack", ["IPv4"], 1)),
    "d2": ({"clusterIP": "None", "selector": None}, ("RequireDualStack", ["IPv4", "IPv6"], 0)),
    "d3": ({"clusterIP": "None"}, ("SingleStack", ["IPv4"], 0)),
    "d4": ({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}, ("SingleStack", ["IPv6"], 1)),
    "d5": ({"ipFamilyPolicy": "PreferDualStack"}, ("PreferDualStack", ["IPv4", "IPv6"], 2)),
    "d5-ordered": (
        {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]},
        ("PreferDualStack", ["IPv6", "IPv4"], 2),
    ),
    "d7": (
        {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]},
        ("RequireDualStack", ["IPv6", "IPv4"], 2),
    ),
    "d9": (
        {"ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["fd00:96::d9", "10.96.0.209"]},
        ("RequireDualStack", ["IPv6", "IPv4"], 2),
    ),
    "d19": (
        {"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]},
        ("PreferDualStack", ["IPv6", "IPv4"], 0),
    ),
}
# D-number -> spec of a Service that is refused, and why
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "d9-twice": (
        {"ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["10.96.0.209", "10.96.0.210"]},
        "spec.clusterIPs",
    ),
    "d10": ({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}, "spec.ipFamilyPolicy: Invalid"),
    "d10-unsaid": ({"clusterIPs": ["10.96.0.210", "fd00:96::d10"]}, "spec.ipFamilyPolicy: Invalid"),
    "d11": ({"clusterIPs": ["fd00:96::d11"], "ipFamilies": ["IPv4"]}, "spec.clusterIPs[0]: Invalid"),
    "d20": (
        {"type": "ExternalName", "externalName": "a.example", "ipFamilies": ["IPv6"], "ports": None},
        "spec.ipFamilies: Forbidden",
    ),
}


def _service(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    plain = {"ports": [{"port": 80}], "selector": {"app": "none"}, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": plain}


def _list(documents: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


def test_families_policy_and_addresses_are_given_as_asked(cluster: Cluster, namespace: str) -> None:
    made = _list([_service(name, spec) for name, (spec, _) in GIVEN.items()])
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=made)
    found = {item["metadata"]["name"]: item["spec"] for item in cluster.get("services", "-n", namespace)["items"]}
    for name, (asked, (policy, families, count)) in GIVEN.items():
        spec = found[name]
        assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == (policy, families), name
        if not count:
            assert spec["clusterIPs"] == ["None"], name
            continue
        assert ["IPv6" if is_ipv6(address) else "IPv4" for address in spec["clusterIPs"]] == families[:count], name
        assert len(spec["clusterIPs"]) == count, name
        assert spec["clusterIP"] == spec["clusterIPs"][0], name
        assert spec["clusterIPs"] == asked.get("clusterIPs", spec["clusterIPs"]), name
    held = {item["metadata"]["name"] for item in cluster.get("ipaddresses")["items"]}
    assert {a for spec in found.values() for a in spec["clusterIPs"] if a != "None"} <= held


def test_families_that_cannot_be_are_refused_with_the_field(cluster: Cluster, namespace: str) -> None:
    made = _list([_service(name, spec) for name, (spec, _) in REFUSED.items()])
    done = cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=made, check=False)
    assert done.returncode == 1
    said = {name: line for name in REFUSED for line in done.stderr.splitlines() if f'"{name}" is invalid' in line}
    for name, (_, why) in REFUSED.items():
        assert why in said.get(name, ""), f"{name}: {done.stderr}"
    assert cluster.get("services", "-n", namespace)["items"] == []


def test_a_live_service_gains_and_loses_its_second_family(cluster: Cluster, app: App) -> None:
    """D12 to D16, and what becomes of the packets."""
    changing = _service("changing", {"selector": {"app": "app"}, "ports": [{"port": 80, "targetPort": 8080}]})
    where = ("-n", app.namespace)
    cluster.kubectl("create", *where, "-f", "-", stdin=json.dumps(changing))
    (first,) = cluster.get("service", "changing", *where)["spec"]["clusterIPs"]

    def patch(spec: dict[str, Any], check: bool = True) -> str:
        argv = ("patch", "service", "changing", *where, "--type=merge", "-p", json.dumps({"spec": spec}))
        return cluster.kubectl(*argv, check=check).stderr

    def reached(address: str) -> bool:
        return _all_answer(cluster, "client", app.pods, [("TCP", address, 80, "hostname", 1)])

    patch({"ipFamilyPolicy": "PreferDualStack"})
    spec = cluster.get("service", "changing", *where)["spec"]
    assert (spec["clusterIPs"][0], spec["ipFamilies"]) == (first, ["IPv4", "IPv6"])
    second = spec["clusterIPs"][1]
    assert is_ipv6(second)
    until(lambda: reached(second))
    assert reached(first)
    # D12: who says nothing of families changes none.
    cluster.kubectl("replace", *where, "-f", "-", stdin=json.dumps(changing))
    assert cluster.get("service", "changing", *where)["spec"] == spec
    # D15, D16
    assert "spec.ipFamilyPolicy: Invalid" in patch({"ipFamilies": ["IPv4"], "clusterIPs": [first]}, check=False)
    assert "may not change once set" in patch({"clusterIPs": ["10.96.0.211", second]}, check=False)
    assert "may not change once set" in patch({"clusterIPs": [first, "fd00:96::d16"]}, check=False)
    assert "may not change once set" in patch({"ipFamilies": ["IPv6", "IPv4"]}, check=False)
    # D14
    patch({"ipFamilyPolicy": "SingleStack"})
    spec = cluster.get("service", "changing", *where)["spec"]
    assert (spec["clusterIPs"], spec["ipFamilies"]) == ([first], ["IPv4"])
    until(lambda: not reached(second))
    assert reached(first)
    assert second not in {item["metadata"]["name"] for item in cluster.get("ipaddresses")["items"]}
    label = "kubernetes.io/service-name=changing"
    until(
        lambda: [s["addressType"] for s in cluster.get("endpointslices", *where, "-l", label)["items"]] == ["IPv4"],
        seconds=10,
    )


def test_the_microscope_sees_both_families(cluster: Cluster, app: App) -> None:
    checked = json.loads(cluster.clusterip("check", "-o", "json", f"{app.namespace}/both").stdout)
    assert checked["allReach"]
    addresses = {(port["address"], port["protocol"]) for port in checked["ports"]}
    assert addresses >= {(address, protocol) for address in app.addresses for protocol in ("TCP", "UDP")}
    assert ("fd00:50::13", "TCP") in addresses
    status = json.loads(cluster.clusterip("status", "-o", "json").stdout)
    assert status["nodes"][1]["addresses"] == ["192.168.50.12", "fd00:50::12"]
    ranges = {use["range"]: use["used"] for use in status["api"]["ranges"] if use["band"] == "dynamic"}
    assert ranges["10.96.0.0/16"] > 0
    assert ranges["fd00:96::/112"] > 0
    node = cluster.field("pod", "client", path=".spec.nodeName")
    traced = cluster.clusterip("trace", "client", f"[{app.addresses[1]}]:80", "--node", node, "-o", "json")
    outcomes = json.loads(traced.stdout)["outcomes"]
    assert [outcome["probability"] for outcome in outcomes] == ["1/2", "1/2"]
