"""A pod's own /etc/hosts and /etc/resolv.conf, as text. Pure.

Source: Kubernetes docs, "DNS for Services and Pods", "Adding entries to Pod /etc/hosts with HostAliases".
"""

from collections.abc import Iterable
from dataclasses import dataclass

from clusterip.model.objects import DNSConfig, Pod

NAMESERVERS_MAX, SEARCHES_MAX = 3, 32
HOSTNAME_MAX = 63  # characters of a label, RFC 1035


@dataclass(frozen=True, slots=True)
class Resolver:
    """What a resolv.conf says."""

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # "ndots:5"


def hostname(pod: Pod, node: str) -> str:
    """What the pod calls itself: of a host-network pod the node's name."""
    if pod.spec.host_network:
        return node
    return (pod.spec.hostname or pod.metadata.name)[:HOSTNAME_MAX].rstrip("-.")


def hosts(pod: Pod, addresses: Iterable[str], cluster_domain: str, of_host: str) -> str:
    """`addresses`: the pod's own. `of_host`: the text of the host's own file, which host-network pods go on using."""
    aliases = [" ".join((alias.ip, *alias.hostnames)) for alias in pod.spec.host_aliases]
    if pod.spec.host_network:
        return "\n".join((of_host.rstrip("\n"), *aliases)) + "\n"
    name = hostname(pod, "")
    names = [name]
    if pod.spec.subdomain:
        names.insert(0, f"{name}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}")
    standard = ("127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback")
    own = (" ".join((address, *names)) for address in addresses)
    return "\n".join((*standard, *own, *aliases)) + "\n"


def parse(text: str) -> Resolver:
    """Lines that say something else are passed over, as resolvers do."""
    nameservers: list[str] = []
    searches: tuple[str, ...] = ()
    options: list[str] = []
    for line in text.splitlines():
        match line.split():
            case ["nameserver", address, *_]:
                nameservers.append(address)
            case ["search" | "domain", *domains]:
                searches = tuple(domains)  # the last such line counts
            case ["options", *words]:
                options += words
    return Resolver(tuple(nameservers), searches, tuple(options))


def text(resolver: Resolver) -> str:
    lines = [f"search {' '.join(resolver.searches)}"] if resolver.searches else []
    lines += [f"nameserver {address}" for address in resolver.nameservers]
    lines += [f"options {' '.join(resolver.options)}"] if resolver.options else []
    return "".join(f"{line}\n" for line in lines)


def resolver(pod: Pod, cluster_dns: tuple[str, ...], cluster_domain: str, of_host: Resolver) -> Resolver:
    """By dnsPolicy, then with dnsConfig put on top. An unset policy is ClusterFirst; that of a host-network pod is
    Default, unless it is ClusterFirstWithHostNet."""
    policy = pod.spec.dns_policy or "ClusterFirst"
    if policy == "ClusterFirst" and pod.spec.host_network:
        policy = "Default"
    match policy:
        case "None":
            found = Resolver()
        case "Default":
            found = of_host
        case _:
            own = (f"{pod.metadata.namespace}.svc.{cluster_domain}", f"svc.{cluster_domain}", cluster_domain)
            found = Resolver(cluster_dns, own + of_host.searches, ("ndots:5",))
    return _merged(found, pod.spec.dns_config or DNSConfig())


def _merged(under: Resolver, config: DNSConfig) -> Resolver:
    given = {option["name"]: option.get("value", "") for option in config.options if option.get("name")}
    kept = [option for option in under.options if option.partition(":")[0] not in given]
    added = [f"{name}:{value}" if value else name for name, value in given.items()]
    return Resolver(
        _unique((*under.nameservers, *config.nameservers))[:NAMESERVERS_MAX],
        _unique((*under.searches, *config.searches))[:SEARCHES_MAX],
        (*kept, *added),
    )


def _unique(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
