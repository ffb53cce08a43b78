"""The first steps: the objects, the address that is only a field, the rules that the proxy writes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from fractions import Fraction
from ipaddress import ip_address, ip_network

from clusterip.lab.demo import dial, reading
from clusterip.lab.demo.stage import APP, FIELD, POD_PORT, PORT, Place, Stage, until
from clusterip.lab.demo.values import Claim, Explained, Manifest, Say, Shown, Title, Wait
from clusterip.model import resources

APP_YAML = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  replicas: 3
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: clusterip/echo
        ports: [{containerPort: 8080}]
        readinessProbe:
          httpGet: {path: /healthz, port: 8080}
          periodSeconds: 1
          failureThreshold: 1
"""
CLIENT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "client"},
    "spec": {"containers": [{"name": "client", "image": "clusterip/client"}]},
}


async def three_pods(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("Three pods, and one address in front of them")
    yield Say("A Deployment runs three copies of a small echo server. Each is asked every second if it is ready.")
    stage.tools.write("app.yaml", APP_YAML)
    yield Manifest("app.yaml", APP_YAML)
    await stage.api.create(resources.PODS, stage.namespace, CLIENT)
    yield await stage.here("kubectl apply -f app.yaml")
    yield await stage.here(f"kubectl expose deployment {APP} --port={PORT} --target-port={POD_PORT}")
    yield Wait("waiting for three ready pods")
    await stage.until_ready(3)
    client = await stage.until_running("client")
    stage.client = Place("client", stage.pod_netns(client))
    pods = await stage.backends()
    yield await stage.here("kubectl get pods -o wide", marks=tuple(pod.address for pod in pods))
    stage.address = (await stage.here(FIELD)).output.strip()
    yield await stage.here(f"kubectl get service {APP}", marks=(stage.address,))
    ranges = await stage.here("kubectl get servicecidrs")
    yield ranges
    different = len({pod.address for pod in pods})
    yield Claim(
        "Three pods are ready, each with an address of its own.", different == 3, f"{different} different addresses"
    )
    words = ranges.output.replace(",", " ").split()  # a range of each family: "10.96.0.0/16,fd00:96::/112"
    network = next((ip_network(word) for word in words if "/" in word and ":" not in word), None)
    inside = network is not None and ip_address(stage.address) in network
    outside = not any(network is not None and ip_address(pod.address) in network for pod in pods)
    yield Claim(
        f"The Service got {stage.address} from the range {network}, in which no pod has its address.",
        inside and outside,
        f"range {network}, pods {', '.join(pod.address for pod in pods)}",
    )


async def on_no_interface(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("The address is a field of the Service, and on no interface")
    yield await stage.here(FIELD, marks=(stage.address,))
    yield Say("We look for it on every interface of every node, and of every pod:")
    carried: dict[str, tuple[str, ...]] = {}
    for node in stage.nodes:
        listing = await stage.on(node, "ip -4 -brief address")
        carried[node.name] = reading.addresses(listing.output)
        yield listing
    pods = (stage.client, *(pod.place for pod in await stage.backends()))
    for place in pods:
        carried[place.name] = reading.addresses((await stage.on(place, "ip -4 -brief address")).output)
    number = sum(map(len, carried.values()))
    owners = [name for name, found in carried.items() if stage.address in found]
    yield Claim(
        f"None of the {number} addresses on {len(stage.nodes)} nodes and {len(pods)} pods is {stage.address}.",
        not owners and number > len(carried),
        f"{stage.address} is on {', '.join(owners)}" if owners else f"only {number} addresses found",
    )
    held = await stage.here(f"kubectl get ipaddress {stage.address}", marks=(f"services/{stage.namespace}/{APP}",))
    yield held
    yield Claim(
        "All that holds it is an object in the API server, so nobody else can be given it.",
        f"services/{stage.namespace}/{APP}" in held.output,
        held.output,
    )


async def rules(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("The proxy of each node watches, and writes rules")
    yield Say(
        "It sees the Service and its EndpointSlice, and writes the kernel's nat table. One rule of KUBE-SERVICES "
        "catches packets to the ClusterIP, whoever sent them:"
    )
    node, tool = stage.nodes[0], stage.tools.iptables
    yield Wait("waiting for the rules")
    stage.chain = await until("a rule for the ClusterIP", lambda: _chain(stage, node), 10)
    await stage.settled(3)
    listed = await stage.on(
        node, f"{tool} -t nat -L KUBE-SERVICES -n | grep {stage.address}", marks=(stage.address, stage.chain)
    )
    yield listed
    yield Claim(
        f"A packet from anywhere (0.0.0.0/0) to {stage.address} goes on to {stage.chain}.",
        any("0.0.0.0/0" in line and stage.chain in line for line in listed.lines),
        listed.output,
    )
    yield Say("That chain draws lots. Its rules are asked from top to bottom:")
    chain = await stage.on(node, f"{tool} -t nat -L {stage.chain} -n")
    yield replace(chain, marks=reading.odds(chain.output))
    table = await stage.nat(node)
    draws = [jump for jump in reading.jumps(reading.in_chain(table, stage.chain)) if "KUBE-SEP" in jump.to]
    yield _lots(draws, table)
    parts = reading.shares([jump.chance for jump in draws])
    yield Claim(
        "Each pod is drawn with probability 1/3, to the 31 bits that the kernel keeps.",
        len(parts) == 3 and all(abs(part - Fraction(1, 3)) < Fraction(1, 2**30) for part in parts),
        ", ".join(f"{float(part):.9f}" for part in parts),
    )
    async for shown in _last_rule(stage, draws):
        yield shown


async def _chain(stage: Stage, node: Place) -> str:
    return reading.chain_of(await stage.nat(node, "KUBE-SERVICES"), stage.address, PORT)


def _lots(draws: list[reading.Jump], table: str) -> Explained:
    """ "KUBE-SEP-... (10.244.3.9:8080)  2/3 × 1/2 × 1 = 1/3"."""
    rows, passed = [], ""
    for number, draw in enumerate(draws):
        chance = Fraction(1, len(draws) - number)  # which the kernel's own number is closest to
        product = f"{passed}{chance} = 1/{len(draws)}" if passed else f"{chance}"
        rows.append((f"{draw.to} ({reading.dnat(reading.in_chain(table, draw.to))})", product))
        passed += f"{1 - chance} × "
    return Explained(tuple(rows))


async def _last_rule(stage: Stage, draws: list[reading.Jump]) -> AsyncIterator[Shown]:
    """DNAT, the same on all nodes, and nobody forwards."""
    node, tool = stage.nodes[0], stage.tools.iptables
    yield Say("The chain of one pod is the end of the trace. DNAT writes the pod's own address into the packet:")
    yield await stage.on(
        node,
        f"{tool} -t nat -L {draws[0].to} -n",
        marks=(f"to:{reading.dnat(reading.in_chain(await stage.nat(node), draws[0].to))}", "DNAT"),
    )
    ready = await stage.ready()
    kernels = {place.name: await stage.in_kernel(place) for place in stage.nodes}
    yield Claim(
        f"All {len(kernels)} nodes have these rules, and they name the three ready pods and nobody else.",
        all(found == ready for found in kernels.values()),
        "; ".join(f"{name}: {', '.join(sorted(found)) or 'none'}" for name, found in kernels.items()),
    )
    if stage.proxies:
        yield Say("The proxy only writes rules. So we freeze all proxies with SIGSTOP, and connect:")
        async with stage.frozen_proxies() as frozen:
            counts = await dial.spread(stage.client.netns, stage.address, 20)
        names = {pod.name for pod in await stage.backends()}
        answered = sum(number for name, number in counts.items() if name in names)
        yield Claim(
            f"With {frozen} proxies frozen, {answered} of 20 connections were answered: packets never pass a proxy.",
            frozen == len(stage.nodes) and answered == 20,
            f"{frozen} proxies frozen; {dict(counts)}",
        )
