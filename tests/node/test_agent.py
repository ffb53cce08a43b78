"""Pods on a real node, against a real API server."""

import asyncio
import time
from functools import partial

import pytest
from tests.node.onenode import (
    NODE,
    NODE_IP,
    NODE_IPS,
    Tenant,
    answers,
    ask,
    condition,
    container,
    echo,
    eventually,
    is_ready,
    network,
    no_network,
    shell,
)

from clusterip.client.api import PatchKind
from clusterip.kernel import links
from clusterip.kernel.run import run
from clusterip.model.objects import Event, Lease, Node, Pod
from clusterip.model.resources import CONFIG_MAPS, EVENTS, LEASES, NODES, PODS

pytestmark = pytest.mark.kernel


async def test_a_node_registers_itself_and_renews_its_lease(here: Tenant) -> None:
    async def registered() -> bool:
        nodes = (await here.api.list(NODES, Node)).items
        return any(c.type == "Ready" for node in nodes for c in node.status.conditions)

    await eventually(registered)
    node = await here.api.get(NODES, "", NODE, Node)
    addresses = [("InternalIP", NODE_IPS[0]), ("InternalIP", NODE_IPS[1]), ("Hostname", NODE)]
    assert [(a.type, a.address) for a in node.status.addresses] == addresses
    assert (node.spec.pod_cidr, node.spec.pod_cidrs) == ("10.244.1.0/24", ("10.244.1.0/24", "fd00:1:1::/64"))
    assert (
        node.metadata.labels.items()
        >= {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "zone": "a"}.items()
    )
    assert node.status.allocatable["cpu"].isdecimal()
    lease = await here.api.get(LEASES, "kube-node-lease", NODE, Lease)
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == (NODE, 40)
    assert [owner.uid for owner in lease.metadata.owner_references] == [node.metadata.uid]


async def test_a_node_that_was_deleted_registers_anew_at_its_next_renewal(here: Tenant) -> None:
    async def renewed() -> bool:
        return bool((await here.api.list(LEASES, Lease, "kube-node-lease")).items)

    await eventually(renewed, 15)  # a young agent registers its node first
    before = await here.api.get(NODES, "", NODE, Node)
    await here.api.delete(NODES, "", NODE)
    await here.api.delete(LEASES, "kube-node-lease", NODE)  # as the garbage collector does

    async def back() -> bool:
        leases = (await here.api.list(LEASES, Lease, "kube-node-lease")).items
        nodes = (await here.api.list(NODES, Node)).items
        owners = [owner.uid for lease in leases for owner in lease.metadata.owner_references]
        return bool(nodes) and owners == [node.metadata.uid for node in nodes]

    await eventually(back, 15)
    after = await here.api.get(NODES, "", NODE, Node)
    assert after.metadata.uid != before.metadata.uid
    assert after.spec.pod_cidr == "10.244.1.0/24"


async def test_a_pod_runs_in_a_network_of_its_own_with_an_address_of_each_family(here: Tenant) -> None:
    await here.create("web", echo())
    pod = await here.ready("web")
    addresses = [ip.ip for ip in pod.status.pod_ips]
    assert [address.startswith(of) for address, of in zip(addresses, ("10.244.1.", "fd00:1:1::"), strict=True)]
    assert pod.status.pod_ip == addresses[0]
    assert (pod.status.phase, pod.status.host_ip) == ("Running", NODE_IP)
    assert pod.status.start_time
    assert container(pod, "web").started
    links = (await run(("ip", "-br", "address"), netns=network(here, "web"))).stdout.decode()
    for address in addresses:
        await eventually(partial(answers, here.node.space, address))
        assert ask(here.node.space, address, "/hostname") == (200, "web")
        assert f"{address}/{128 if ':' in address else 32}" in links


async def test_pods_of_a_node_reach_each_other_and_themselves(here: Tenant) -> None:
    await here.create("one", echo())
    await here.create("two", echo())
    pods = [(await here.ready(name)).status.pod_ips for name in ("one", "two")]
    for one, two in [(a.ip, b.ip) for a, b in zip(*pods, strict=True)]:
        await eventually(partial(answers, network(here, "one"), two))
        await eventually(partial(answers, network(here, "two"), one))
        own = f"[{one}]:" if ":" in one else f"{one}:"
        assert ask(network(here, "one"), two, "/clientip")[1].startswith(own)
        assert ask(network(here, "one"), one, "/clientip")[1].startswith(own)


async def test_a_container_has_the_files_and_the_environment_that_kubernetes_promises(here: Tenant) -> None:
    env = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "AT", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "BOTH", "value": "$(WHO)@$(AT)"},
    ]
    script = "cat /etc/hosts /etc/resolv.conf; hostname; env; echo $0"
    one = shell(script, env=env, args=["$(BOTH)"])
    await here.create("told", one, restartPolicy="Never", hostname="zero", subdomain="sub")
    pod = await here.until("told", lambda pod: pod.status.phase == "Succeeded")
    _, text = await here.logs("told")
    lines = text.split("\n")
    address, space = pod.status.pod_ip, here.namespace
    for own in pod.status.pod_ips:
        assert f"{own.ip} zero.sub.{space}.svc.cluster.local zero" in lines
    assert "nameserver 10.96.0.10" in lines
    assert any(line.startswith(f"search {space}.svc.cluster.local svc.cluster.local cluster.local") for line in lines)
    assert "options ndots:5" in lines
    assert {"zero", "HOSTNAME=zero", "WHO=told", f"BOTH=told@{address}"} <= set(lines)
    assert "KUBERNETES_SERVICE_HOST=10.96.0.1" in lines
    assert lines[-2] == f"told@{address}"


async def test_an_image_of_the_users_table_runs_with_its_environment(here: Tenant) -> None:
    await here.create("greeter", {"name": "c", "image": "greeter:v1"}, restartPolicy="Never")
    await here.until("greeter", lambda pod: pod.status.phase == "Succeeded")
    assert await here.logs("greeter") == (200, "hello\n")


async def test_an_image_that_nobody_maps_waits_and_says_what_to_do(here: Tenant) -> None:
    await here.create("lost", {"name": "c", "image": "nginx:1.27"})

    def waits(pod: Pod) -> bool:
        waiting = container(pod).state.waiting
        return waiting is not None and waiting.reason == "ErrImageNotMapped" and "`nginx: [" in waiting.message

    assert (await here.until("lost", waits)).status.phase == "Pending"

    async def told() -> bool:
        events = (await here.api.list(EVENTS, Event, here.namespace)).items
        return any(e.reason == "Failed" and "ErrImageNotMapped" in e.message for e in events)

    await eventually(told)
    await here.api.delete(PODS, here.namespace, "lost")
    await here.gone("lost")


async def test_another_image_makes_another_program_of_the_same_pod(here: Tenant) -> None:
    await here.create("typo", {"name": "c", "image": "clusterip/ecko"})
    await here.until("typo", lambda pod: container(pod).state.waiting is not None)
    mended = {"spec": {"containers": [{"name": "c", "image": "clusterip/client"}]}}
    await here.api.patch(PODS, here.namespace, "typo", mended, kind=PatchKind.STRATEGIC)
    first = await here.ready("typo")
    assert container(first).restart_count == 0
    echoing = {"spec": {"containers": [{"name": "c", "image": "clusterip/echo"}]}}
    await here.api.patch(PODS, here.namespace, "typo", echoing, kind=PatchKind.STRATEGIC)
    second = await here.until("typo", lambda pod: container(pod).restart_count == 1 and is_ready(pod))
    assert (container(second).image, second.status.pod_ip) == ("clusterip/echo", first.status.pod_ip)
    await eventually(lambda: answers(here.node.space, second.status.pod_ip))


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")])
async def test_a_pod_that_is_not_restarted_ends_as_its_container_did(
    here: Tenant, code: int, phase: str, reason: str
) -> None:
    await here.create("job", shell(f"exit {code}"), restartPolicy="Never")
    pod = await here.until("job", lambda pod: pod.status.phase in ("Succeeded", "Failed"))
    end = container(pod).state.terminated
    assert end is not None
    assert (pod.status.phase, end.exit_code, end.reason) == (phase, code, reason)
    await eventually(lambda: no_network(here, "job"))


async def test_a_container_that_keeps_failing_is_started_again_and_then_waits(here: Tenant) -> None:
    await here.create("crash", shell("echo run; exit 3"))

    def waits(pod: Pod) -> bool:
        waiting, last = container(pod).state.waiting, container(pod).last_state.terminated
        return bool(waiting and waiting.reason == "CrashLoopBackOff" and last and last.exit_code == 3)

    pod = await here.until("crash", waits)
    assert (pod.status.phase, container(pod).restart_count) == ("Running", 1)
    assert await here.logs("crash", previous="true") == (200, "run\n")


async def test_a_program_that_is_not_there_is_a_start_error(here: Tenant) -> None:
    await here.create("typo", {"name": "c", "image": "x", "command": ["no-such-program"]}, restartPolicy="Never")
    pod = await here.until("typo", lambda pod: pod.status.phase == "Failed")
    end = container(pod).state.terminated
    assert end is not None
    assert (end.exit_code, end.reason) == (128, "StartError")
    assert 'exec: "no-such-program": executable file not found in $PATH' in end.message


async def test_a_config_map_that_is_missing_is_waited_for(here: Tenant) -> None:
    source = {"configMapKeyRef": {"name": "settings", "key": "colour"}}
    await here.create(
        "needs", shell("echo $COLOUR", env=[{"name": "COLOUR", "valueFrom": source}]), restartPolicy="Never"
    )

    def waits(pod: Pod) -> bool:
        waiting = container(pod).state.waiting
        return waiting is not None and waiting.reason == "CreateContainerConfigError"

    await here.until("needs", waits)
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"colour": "red"}}
    await here.api.create(CONFIG_MAPS, here.namespace, settings)
    await here.until("needs", lambda pod: pod.status.phase == "Succeeded")
    assert await here.logs("needs") == (200, "red\n")


async def test_init_containers_run_one_after_the_other_and_sidecars_stay(here: Tenant) -> None:
    log = here.node.directory / f"{here.namespace}.order"
    inits = [
        shell(f"echo one >> {log}", "one"),
        shell(f"echo side >> {log}; trap 'echo side ends >> {log}; exit 0' TERM; while :; do sleep 0.05; done", "side")
        | {"restartPolicy": "Always"},
        shell(f"while ! grep -q side {log}; do sleep 0.01; done; echo two >> {log}", "two"),
    ]
    main = shell(f"echo main >> {log}; sleep 0.2; echo main ends >> {log}")
    await here.create("order", main, initContainers=inits, restartPolicy="Never")
    await here.until("order", lambda pod: pod.status.phase == "Succeeded")
    assert log.read_text().split("\n") == ["one", "side", "two", "main", "main ends", "side ends", ""]


async def test_an_init_container_that_fails_keeps_the_others_from_starting(here: Tenant) -> None:
    await here.create("stuck", shell("echo never"), initContainers=[shell("exit 4", "init")], restartPolicy="Never")
    pod = await here.until("stuck", lambda pod: pod.status.phase == "Failed")
    assert condition(pod, "Initialized").status == "False"
    assert container(pod).state.waiting is not None


PROBE = {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1}
WEB = echo(ports=[{"containerPort": 8080, "name": "http"}], readinessProbe=PROBE)


async def test_a_pod_is_ready_soon_after_its_server_answers_and_unready_within_a_period(here: Tenant) -> None:
    began = time.monotonic()
    await here.create("web", WEB)
    address = (await here.ready("web")).status.pod_ip
    assert time.monotonic() - began < 5
    ask(here.node.space, address, "/fail?path=/readyz", "POST")
    pod = await here.until("web", lambda pod: not is_ready(pod), 5)
    assert condition(pod).message == "containers with unready status: [web]"
    assert condition(pod).last_transition_time
    assert container(pod, "web").restart_count == 0
    ask(here.node.space, address, "/ok", "POST")
    await here.until("web", is_ready, 5)


async def test_a_pod_that_fails_its_liveness_probe_is_started_again(here: Tenant) -> None:
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 2}
    await here.create(
        "web", echo(livenessProbe=probe, readinessProbe=PROBE | {"tcpSocket": {"port": 8080}, "httpGet": None})
    )
    address = (await here.ready("web")).status.pod_ip
    ask(here.node.space, address, "/fail", "POST")
    pod = await here.until("web", lambda pod: container(pod, "web").restart_count == 1 and is_ready(pod))
    assert pod.status.pod_ip == address
    assert container(pod, "web").last_state.terminated is not None
    assert ask(here.node.space, address, "/healthz")[0] == 200


async def test_the_other_probes_wait_for_the_startup_probe(here: Tenant) -> None:
    flag = here.node.directory / f"{here.namespace}.flag"
    startup = {"exec": {"command": ["test", "-e", str(flag)]}, "periodSeconds": 1, "failureThreshold": 30}
    await here.create("slow", echo("c", startupProbe=startup))
    pod = await here.until("slow", lambda pod: container(pod).state.running is not None)
    await asyncio.sleep(0.3)
    pod = await here.pod("slow")
    assert (container(pod).started, container(pod).ready) == (False, False)
    flag.touch()
    assert container(await here.ready("slow")).started


async def test_a_container_that_never_starts_up_is_killed(here: Tenant) -> None:
    startup = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await here.create("dead", shell("sleep 1000", startupProbe=startup))
    pod = await here.until("dead", lambda pod: container(pod).restart_count >= 1)
    end = container(pod).last_state.terminated
    assert end is not None
    assert end.exit_code == 143


async def test_a_readiness_gate_keeps_a_pod_unready_until_it_opens(here: Tenant) -> None:
    await here.create("gated", echo("c"), readinessGates=[{"conditionType": "example.org/open"}])
    pod = await here.until("gated", lambda pod: condition(pod, "ContainersReady").status == "True")
    assert condition(pod).reason == "ReadinessGatesNotReady"
    opened = {"status": {"conditions": [{"type": "example.org/open", "status": "True"}]}}
    await here.api.patch(PODS, here.namespace, "gated", opened, subresource="status", kind=PatchKind.STRATEGIC)
    pod = await here.ready("gated")
    assert condition(pod, "example.org/open").status == "True"


async def test_what_somebody_else_writes_over_our_status_is_put_right(here: Tenant) -> None:
    await here.create("web", echo("c"))
    await here.ready("web")
    wrong = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]}}
    await here.api.patch(PODS, here.namespace, "web", wrong, subresource="status", kind=PatchKind.STRATEGIC)
    assert condition(await here.ready("web")).reason == ""


async def test_a_host_network_pod_has_the_address_and_the_links_of_the_node(here: Tenant) -> None:
    await here.create("host", shell("hostname; ls /sys/class/net"), hostNetwork=True, restartPolicy="Never")
    pod = await here.until("host", lambda pod: pod.status.phase == "Succeeded")
    assert (pod.status.pod_ip, pod.status.host_ip) == (NODE_IP, NODE_IP)
    assert tuple(ip.ip for ip in pod.status.pod_ips) == NODE_IPS
    _, text = await here.logs("host")
    assert text.split("\n")[0] == NODE


async def test_the_agents_port_wants_its_token(here: Tenant) -> None:
    async def status_of(path: str, *more: str, host: str = NODE_IP) -> str:
        argv = ("curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", *more, f"https://{host}:10250{path}")
        return (await run(argv, netns=here.node.space)).stdout.decode()

    assert await status_of("/healthz") == "200"
    assert await status_of("/healthz", host=f"[{NODE_IPS[1]}]") == "200"
    assert await status_of("/pods") == "401"
    assert await status_of("/pods", "-H", "Authorization: Bearer wrong") == "401"
    assert await status_of("/pods", "-H", "Authorization: Bearer agent-secret") == "200"
    assert (
        await status_of(f"/containerLogs/{here.namespace}/none/c", "-H", "Authorization: Bearer agent-secret") == "404"
    )


async def test_an_address_is_always_the_same_neighbour(here: Tenant) -> None:
    await here.create("web", echo("c"))
    address = (await here.ready("web")).status.pod_ip
    shown = await run(("ip", "-br", "link", "show", "eth0"), netns=network(here, "web"))
    assert links.mac(address) in shown.stdout.decode()
