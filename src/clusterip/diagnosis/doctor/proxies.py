"""Which proxy keeps a node's rules, and what restarts it, shows its log and takes away what it left. Pure.

The chains of iptables and the servers of IPVS have the same names whoever wrote them. The tables of nftables mode, the
maps of eBPF mode, logs, pods and configurations tell; where they do not, both are named.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from clusterip.dataplane.nftables.config import TABLE
from clusterip.rulesets import proxylog
from clusterip.rulesets.klog import Log

if TYPE_CHECKING:
    from clusterip.diagnosis.doctor.known import Known

Writer: TypeAlias = Literal["kube-proxy", "clusterip", ""]  # "": either

_KUBE_PROXY = "kube-proxy"


class Trouble(NamedTuple):
    """Why a proxy does not keep the rules current, where it could be asked."""

    id: Literal["proxy-not-running", "sync-failing"]  # of a finding
    message: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Proxy:
    name: str  # "kube-proxy", "clusterip proxy", "the proxy"
    command: str  # that restarts it
    logs: str  # what shows its log
    cleanup: str  # what takes away rules that it, or another mode of it, has left
    note: str = ""  # on the command that restarts it
    trouble: Trouble | None = None

    def restart(self, why: str = "") -> str:
        """The command, and what there is to say of it."""
        said = "; ".join(text for text in (self.note, why) if text)
        return f"{self.command}   # {said}" if said else self.command


_STOPPED = "of the version and mode that wrote the rules, while it is stopped; or restart the node"
KUBE_PROXY = Proxy(
    "kube-proxy",
    "kubectl rollout restart daemonset/kube-proxy -n kube-system",
    "kubectl logs -n kube-system -l k8s-app=kube-proxy --tail=50",
    f"kube-proxy --cleanup   # {_STOPPED}",
)
OURS = Proxy(
    "clusterip proxy",
    "restart clusterip proxy on this node",
    "read its log",
    "restart clusterip proxy on this node   # at its start it takes away what other modes left",
)
EITHER = Proxy(
    "the proxy",
    KUBE_PROXY.command,
    KUBE_PROXY.logs,
    f"kube-proxy --cleanup   # or clusterip proxy --cleanup; {_STOPPED}",
    "or restart clusterip proxy, if that runs here",
)
_BY_WRITER: dict[Writer, Proxy] = {"kube-proxy": KUBE_PROXY, "clusterip": OURS, "": EITHER}


def with_proxy(known: "Known", told: Proxy | None = None) -> "Known":
    """`told`: the node's, where whoever asks knows it."""
    writers = set(_writers(known))
    return replace(known, proxy=told or _BY_WRITER[writers.pop() if len(writers) == 1 else ""])


def is_told(known: "Known") -> bool:
    """Whoever asks knows the node's proxy: the input is all that there is of a node."""
    return known.proxy not in _BY_WRITER.values()


def by(known: "Known", writer: Writer) -> Proxy:
    """Of rules that tell who wrote them, whoever else keeps some; "": they do not."""
    return _BY_WRITER[writer] if writer and not is_told(known) else known.proxy


def of_table(known: "Known", name: str) -> Proxy:
    """Of a table of nftables by its name."""
    return by(known, "clusterip" if name == TABLE else "kube-proxy" if name == _KUBE_PROXY else "")


def of_log(known: "Known", log: Log) -> Proxy:
    return by(known, _writer(log))


def _writer(log: Log) -> Writer:
    """klog names a file of the program's source in each line; our events have a name of their own."""
    if not any(True for _ in proxylog.events(log)):
        return ""
    return "clusterip" if any(e.message.startswith("proxy.") and not e.source for e in log.entries) else "kube-proxy"


def _writers(known: "Known") -> Iterator[Writer]:
    tables = {table.name for source in known.nft for table in source.values}
    names = {p.metadata.name for p in known.pods if p.metadata.namespace == "kube-system"}
    names |= {d.values.name for d in known.of_kind("DaemonSet") if d.values.namespace == "kube-system"}
    if _KUBE_PROXY in tables or any(name.startswith(_KUBE_PROXY) for name in names):
        yield "kube-proxy"
    configured = any("ebpf" in d.values.document for d in known.of_kind("KubeProxyConfiguration"))
    if TABLE in tables or known.sockets or configured:
        yield "clusterip"
    yield from (writer for log in known.logs if (writer := _writer(log.values)))
