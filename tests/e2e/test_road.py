"""The road, with real packets: what must hold for every connection to a ClusterIP."""

import json
import re
import subprocess
import time
from collections import Counter
from functools import partial

import pytest

from .conftest import MODE, Cluster, app, iptables_mode, packet_modes, program, reaches, until

pytestmark = pytest.mark.e2e

# Opens argv[2] connections to argv[1]:80, one after the other, and prints how often each backend answered.
SPREAD = """
import json, sys, socket, collections
counts = collections.Counter()
for _ in range(int(sys.argv[2])):
    with socket.create_connection((sys.argv[1], 80), timeout=5) as s:
        s.sendall(b"GET /hostname HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
        data = b""
        while chunk := s.recv(4096):
            data += chunk
    counts[data.rpartition(b"\\r\\n\\r\\n")[2].decode().strip()] += 1
print(json.dumps(counts))
"""

# Times one connect() to argv[1]:argv[2]; prints the errno's name (or "connected") and milliseconds.
CONNECT = """
import errno, json, socket, sys, time
best = None
for _ in range(10):
    s = socket.socket(); s.settimeout(5); start = time.perf_counter()
    try:
        s.connect((sys.argv[1], int(sys.argv[2]))); what = "connected"
    except TimeoutError:
        what = "timeout"
    except OSError as e:
        what = errno.errorcode[e.errno]
    took = (time.perf_counter() - start) * 1000
    s.close()
    best = (what, took) if best is None or took < best[1] else best
    if what == "timeout":
        break
print(json.dumps(best))
"""


def curl(cluster: Cluster, target: str, address: str, path: str = "/hostname") -> str:
    return cluster.exec(target, "curl", "-s", "-m", "5", f"http://{address}{path}").strip()


def pods(cluster: Cluster, namespace: str) -> dict[str, dict[str, str]]:
    """name -> {ip, node} of the running pods."""
    items = cluster.get("pods", "-n", namespace)["items"]
    return {
        p["metadata"]["name"]: {"ip": p["status"].get("podIP", ""), "node": p["spec"].get("nodeName", "")}
        for p in items
        if "deletionTimestamp" not in p["metadata"]
    }


def test_3000_connections_spread_evenly_over_three_backends(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace)
    counts = Counter(cluster.python("client", SPREAD, address, "3000"))
    assert sum(counts.values()) == 3000
    assert len(counts) == 3
    chi_square = sum((n - 1000) ** 2 / 1000 for n in counts.values())
    assert chi_square < 27.63, f"2 degrees of freedom, p = 0.000001: {counts}"


@packet_modes
def test_the_client_sees_only_the_clusterip_and_the_backend_sees_the_client(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace, replicas=1)
    (backend,) = pods(cluster, namespace).values()
    client_ip = cluster.field("pod", "client", path=".status.podIP")
    client_side = capture(cluster, "client", "tcp and port 80")
    server_side = capture(cluster, f"{namespace}/{next(iter(pods(cluster, namespace)))}", f"tcp and host {client_ip}")
    curl(cluster, "client", address)
    seen_by_client, seen_by_server = addresses(client_side), addresses(server_side)
    assert seen_by_client == {client_ip, address}
    assert seen_by_server == {client_ip, backend["ip"]}


def capture(cluster: Cluster, target: str, what: str) -> "subprocess.Popen[str]":
    """It listens when this returns, and ends with the fourth packet: that is the first with data."""
    argv = [program("clusterip"), "exec", "--name", cluster.name, target, "--"]
    started = subprocess.Popen(
        [*argv, "timeout", "30", "tcpdump", "-nnlq", "-c", "4", "-i", "eth0", what],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert started.stdout
    before = ""
    while "listening on" not in before:
        line = started.stdout.readline()
        assert line, f"no tcpdump in {target}: {before}"
        before += line
    return started


def addresses(running: "subprocess.Popen[str]") -> set[str]:
    out, _ = running.communicate(timeout=40)
    return {m for line in out.splitlines() for m in re.findall(r"(\d+\.\d+\.\d+\.\d+)\.\d+", line)}


def test_a_connection_stays_on_its_backend_while_endpoints_change(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace)
    keep_alive = """
import http.client, json, sys, time
c = http.client.HTTPConnection(sys.argv[1], timeout=10)
seen = []
for _ in range(40):
    c.request("GET", "/hostname"); seen.append(c.getresponse().read().decode().strip())
    sock = c.sock.getsockname()
    time.sleep(0.2)
print(json.dumps([seen, sock[1]]))
"""
    argv = [program("clusterip"), "exec", "--name", cluster.name, "client", "--", "python3", "-c", keep_alive, address]
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    time.sleep(1.5)
    cluster.kubectl("scale", "-n", namespace, "deployment/app", "--replicas=6")
    until(lambda: len(cluster.ready(namespace, "app")) == 6)
    out, _ = running.communicate(timeout=60)
    seen, _port = json.loads(out)
    assert len(seen) == 40
    assert len(set(seen)) == 1


def test_a_pod_reaches_itself_through_its_service(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace, replicas=1)
    (name,) = pods(cluster, namespace)
    assert curl(cluster, f"{namespace}/{name}", address) == name


def test_source_address_is_kept_from_a_pod_and_masqueraded_from_a_node(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace, replicas=1)
    client_ip = cluster.field("pod", "client", path=".status.podIP")
    assert curl(cluster, "client", address, "/clientip").rsplit(":", 1)[0] == client_ip
    (backend,) = pods(cluster, namespace).values()
    other = next(n for n in ("node-1", "node-2", "node-3") if n != backend["node"])
    node_ip = cluster.get("node", other)["status"]["addresses"][0]["address"]
    assert curl(cluster, other, address, "/clientip").rsplit(":", 1)[0] == node_ip


def test_unready_leaves_slice_and_kernel_and_all_unready_is_refused_at_once(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace)
    names = pods(cluster, namespace)
    first, *others = names
    cluster.exec(f"{namespace}/{first}", "curl", "-s", "-X", "POST", "http://127.0.0.1:8080/fail")
    until(lambda: cluster.ready(namespace, "app") == {names[o]["ip"] for o in others}, seconds=5)
    until(lambda: first not in cluster.python("client", SPREAD, address, "60"), seconds=5)
    for other in others:
        cluster.exec(f"{namespace}/{other}", "curl", "-s", "-X", "POST", "http://127.0.0.1:8080/fail")
    until(lambda: not cluster.ready(namespace, "app"), seconds=5)
    for client in ("client", "node-1", "node-2", "node-3"):
        what, took = until(partial(refused, cluster, client, address), seconds=5)
        assert what == "ECONNREFUSED"
        assert took < 5, f"{client}: refused after {took:.1f} ms"
    for name in names:
        cluster.exec(f"{namespace}/{name}", "curl", "-s", "-X", "POST", "http://127.0.0.1:8080/ok")
    until(lambda: len(cluster.ready(namespace, "app")) == 3, seconds=5)
    until(lambda: reaches(cluster, "client", address), seconds=5)


def refused(cluster: Cluster, client: str, address: str) -> list[object] | None:
    what = cluster.python(client, CONNECT, address, "80")
    return what if what[0] == "ECONNREFUSED" else None


def test_clientip_affinity_pins_survives_others_changes_and_times_out(cluster: Cluster, namespace: str) -> None:
    affinity = "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 4}}\n"
    address = app(cluster, namespace, service=affinity)
    pinned = cluster.python("client", SPREAD, address, "30")
    assert len(pinned) == 1
    (backend,) = pinned
    other = next(p for p in pods(cluster, namespace) if p != backend)
    cluster.kubectl("delete", "pod", "-n", namespace, other, "--wait=false")
    assert set(cluster.python("client", SPREAD, address, "30")) == {backend}
    seen = {backend}
    # IPVS keeps a client for as long as it counts its connections, two minutes after their end, and a minute more.
    quiet = 200.0 if MODE == "ipvs" else 5.5
    for _ in range(10):  # the chance that a fresh choice falls on the same one ten times is 1 in 59,049
        time.sleep(quiet)
        seen |= set(cluster.python("client", SPREAD, address, "1"))
        if len(seen) > 1:
            break
    assert len(seen) > 1


UDP = """
import json, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", int(sys.argv[2]))); s.settimeout(0.3)
s.connect((sys.argv[1], 80)); seen = []
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end and len(set(seen) - {""}) < 2:  # until it has moved
    try:
        s.send(b"hostname"); seen.append(s.recv(200).decode().strip())
    except TimeoutError:
        seen.append("")
    except OSError:  # no answer any more, or, in eBPF mode, no connection
        seen.append(""); s.connect((sys.argv[1], 80))
    time.sleep(0.1)
print(json.dumps(seen))
"""


def test_a_udp_flow_moves_when_its_backend_is_removed(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace, replicas=2)
    argv = [program("clusterip"), "exec", "--name", cluster.name, "client", "--", "python3", "-c", UDP, address]
    running = subprocess.Popen([*argv, "45001", "60"], stdout=subprocess.PIPE, text=True)
    time.sleep(2)
    (first,) = cluster.python("client", UDP, address, "45002", "0.15")[:1] or [""]
    assert first in pods(cluster, namespace)
    table = cluster.exec(
        cluster.field("pod", "client", path=".spec.nodeName"), "conntrack", "-L", "-p", "udp", "--sport", "45001"
    )
    (ip,) = {m for m in re.findall(r"src=(\S+)", table) if m in {p["ip"] for p in pods(cluster, namespace).values()}}
    (victim,) = [n for n, p in pods(cluster, namespace).items() if p["ip"] == ip]
    cluster.kubectl("delete", "pod", "-n", namespace, victim, "--wait=false", "--grace-period=1")
    out, _ = running.communicate(timeout=90)
    seen = [x for x in json.loads(out) if x]
    assert seen[0] == victim
    assert seen[-1] in pods(cluster, namespace)
    assert seen[-1] != victim


@iptables_mode
def test_flushed_and_deleted_rules_come_back_and_foreign_rules_stay(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace)
    foreign = ["-t", "nat", "-I", "POSTROUTING", "-s", "203.0.113.77/32", "-j", "RETURN"]
    cluster.exec("node-2", "iptables", *foreign)
    chain = next(
        line.split()[-1]
        for line in cluster.exec("node-2", "iptables", "-t", "nat", "-S", "KUBE-SERVICES").splitlines()
        if f"{address}/32" in line and "udp" not in line
    )
    for damage in (["-F", chain], ["-F"]):
        cluster.exec("node-2", "iptables", "-t", "nat", *damage)
        until(lambda: reaches(cluster, "node-2", address), seconds=15)
    assert len(cluster.exec("node-2", "iptables", "-t", "nat", "-S", chain).splitlines()) > 3
    cluster.exec("node-2", "iptables", *foreign)
    time.sleep(4)
    assert "203.0.113.77" in cluster.exec("node-2", "iptables", "-t", "nat", "-S", "POSTROUTING")


@pytest.mark.skipif(MODE not in ("nftables", "ebpf"), reason="harms the table of nftables mode")
@pytest.mark.parametrize("damage", ["flush chain ip clusterip services", "delete table ip clusterip", "flush ruleset"])
def test_a_damaged_table_comes_back_and_foreign_tables_stay(cluster: Cluster, namespace: str, damage: str) -> None:
    address = app(cluster, namespace)
    cluster.exec("node-2", "nft", *damage.split())
    cluster.exec("node-2", "nft", "add", "table", "inet", "somebody")
    until(lambda: reaches(cluster, "node-2", address), seconds=15)
    time.sleep(4)
    assert "table inet somebody" in cluster.exec("node-2", "nft", "list", "tables")


def test_names_resolve_and_a_stale_answer_stays_right(cluster: Cluster, namespace: str) -> None:
    """The last section of the third text: pods come and go behind a name resolved once."""
    address = app(cluster, namespace, replicas=2)
    name = f"app.{namespace}.svc.cluster.local"
    assert curl(cluster, "client", name) in pods(cluster, namespace)
    assert curl(cluster, "client", f"app.{namespace}") in pods(cluster, namespace)
    (pod, *_) = pods(cluster, namespace)
    assert curl(cluster, f"{namespace}/{pod}", "app") in pods(cluster, namespace)
    resolve = "import json, socket, sys; print(json.dumps(socket.gethostbyname(sys.argv[1])))"
    stale = cluster.python("client", resolve, name)
    assert stale == address
    before = set(pods(cluster, namespace))
    cluster.kubectl("delete", "pod", "-n", namespace, "--all", "--wait=false")
    until(lambda: len(pods(cluster, namespace)) == 2 and not before & set(pods(cluster, namespace)))
    until(lambda: len(cluster.ready(namespace, "app")) == 2)
    until(lambda: reaches(cluster, "client", stale), seconds=5)
    assert curl(cluster, "client", stale) in pods(cluster, namespace)
