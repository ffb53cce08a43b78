"""Feature gates that a Service proxy knows, as of 1.36. Source: Kubernetes feature gate reference."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Gate(NamedTuple):
    stage: str  # "ALPHA", "BETA", "" for GA, as the metric kubernetes_feature_enabled says it
    default: bool
    locked: bool = False  # it may only be set to its default


GATES: dict[str, Gate] = {
    "AllAlpha": Gate("ALPHA", False),
    "AllBeta": Gate("BETA", False),
    "AllowServiceExternalIPs": Gate("", True),
    "ComponentFlagz": Gate("ALPHA", False),
    "ComponentStatusz": Gate("ALPHA", False),
    "ContextualLogging": Gate("BETA", True),
    "KubeProxyDrainingTerminatingNodes": Gate("", True, locked=True),
    "LoadBalancerIPMode": Gate("", True, locked=True),
    "LoggingAlphaOptions": Gate("ALPHA", False),
    "LoggingBetaOptions": Gate("BETA", True),
    "MultiCIDRServiceAllocator": Gate("", True, locked=True),
    "NFTablesProxyMode": Gate("", True, locked=True),
    "PreferSameTrafficDistribution": Gate("", True, locked=True),
    "RelaxedServiceNameValidation": Gate("BETA", True),
    "ServiceTrafficDistribution": Gate("", True, locked=True),
    "StrictIPCIDRValidation": Gate("BETA", True),
    "TopologyAwareHints": Gate("", True, locked=True),
}


def problems(wanted: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Gate and what is wrong with it."""
    for name, value in wanted.items():
        gate = GATES.get(name)
        if gate is None:
            yield name, f"no such feature gate; there are {', '.join(GATES)}"
        elif gate.locked and value is not gate.default:
            yield name, f"is locked to {str(gate.default).lower()}"


def settings(wanted: Mapping[str, bool]) -> dict[str, bool]:
    """Every gate's state: what was asked for, else what AllAlpha or AllBeta ask for, else its default."""
    everything = {"ALPHA": wanted.get("AllAlpha", False), "BETA": wanted.get("AllBeta", False), "": False}
    return {name: wanted.get(name, gate.default or everything[gate.stage]) for name, gate in GATES.items()}
