"""One row for each entry of the error table that validation decides (conformance 2.9, E10 to E50)."""

import copy
from typing import Any

import pytest

from clusterip.model import defaults, validation
from clusterip.model.resources import SERVICES
from clusterip.model.status import Object

ADDRESS = "10.96.0.20"
PORT = {"port": 80}
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
MODE = "service.kubernetes.io/topology-mode"
HINTS = "service.kubernetes.io/topology-aware-hints"


def service(name: str = "web", annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """A Service as it reaches validation: defaulted, with an address; `field=None` takes a field away."""
    addressed = {} if spec.get("type") == "ExternalName" else {"clusterIP": ADDRESS, "clusterIPs": [ADDRESS]}
    obj: Object = {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"ports": [dict(PORT)], **addressed, **spec},
    }
    obj["spec"] = {key: value for key, value in obj["spec"].items() if value is not None}
    defaults.apply(SERVICES, obj)
    return obj


def balancer(**spec: Any) -> Object:
    return service(type="LoadBalancer", **spec)


def with_spec(obj: Object, **spec: Any) -> Object:
    """After defaulting: what no defaulted document has."""
    changed = copy.deepcopy(obj)
    changed["spec"].update(spec)
    changed["spec"] = {key: value for key, value in changed["spec"].items() if value is not None}
    return changed


def with_ingress(obj: Object, *ingress: Object) -> Object:
    return {**obj, "status": {"loadBalancer": {"ingress": list(ingress)}}}


def two_ports(first: Object, second: Object, **spec: Any) -> Object:
    return service(ports=[{"name": "a", "port": 80, **first}, {"name": "b", "port": 81, **second}], **spec)


INVALID, REQUIRED = "FieldValueInvalid", "FieldValueRequired"
NOT_SUPPORTED, DUPLICATE, FORBIDDEN = "FieldValueNotSupported", "FieldValueDuplicate", "FieldValueForbidden"
DUAL = [ADDRESS, "fd00:96::20"]

ROWS: list[tuple[str, Object, str, str, str]] = [
    ("E10", service(ports=None), "spec.ports", REQUIRED, ""),
    ("E11", service(type="NodePort", clusterIP="None", clusterIPs=["None"]), "spec.clusterIPs[0]", INVALID, "NodePort"),
    ("E11", balancer(clusterIP="None", clusterIPs=["None"]), "spec.clusterIPs[0]", INVALID, "may not be set to 'None'"),
    ("E12", service(type="ExternalName", externalName="a.b", clusterIP=ADDRESS), "spec.clusterIP", FORBIDDEN, ""),
    ("E12", service(type="ExternalName", externalName="a.b", clusterIPs=DUAL), "spec.clusterIPs", FORBIDDEN, ""),
    ("E12", service(type="ExternalName", externalName="a.b", ipFamilies=["IPv4"]), "spec.ipFamilies", FORBIDDEN, ""),
    (
        "E12",
        service(type="ExternalName", externalName="a.b", ipFamilyPolicy="SingleStack"),
        "spec.ipFamilyPolicy",
        FORBIDDEN,
        "may not be set for ExternalName services",
    ),
    ("E13", service(type="ExternalName"), "spec.externalName", REQUIRED, ""),
    ("E13", service(type="ExternalName", externalName="a_b"), "spec.externalName", INVALID, "subdomain"),
    ("E13", service(type="ExternalName", externalName="a.b.."), "spec.externalName", INVALID, ""),
    ("E14", two_ports({}, {"name": ""}), "spec.ports[1].name", REQUIRED, ""),
    ("E15", service(ports=[{"port": 80, "name": "Web"}]), "spec.ports[0].name", INVALID, "DNS-1123 label"),
    ("E16", two_ports({}, {"name": "a"}), "spec.ports[1].name", DUPLICATE, '"a"'),
    ("E17", service(ports=[{"port": 0}]), "spec.ports[0].port", INVALID, "between 1 and 65535, inclusive"),
    ("E17", service(ports=[{"port": 65536}]), "spec.ports[0].port", INVALID, "between 1 and 65535, inclusive"),
    ("E17", service(ports=[{"port": -1}]), "spec.ports[0].port", INVALID, ""),
    (
        "E18",
        service(ports=[{"port": 80, "protocol": "tcp"}]),
        "spec.ports[0].protocol",
        NOT_SUPPORTED,
        'supported values: "SCTP", "TCP", "UDP"',
    ),
    ("E19", service(ports=[{"port": 80, "targetPort": 65536}]), "spec.ports[0].targetPort", INVALID, ""),
    ("E19", service(ports=[{"port": 80, "targetPort": "sixteen-letters-"}]), "spec.ports[0].targetPort", INVALID, "15"),
    ("E19", service(ports=[{"port": 80, "targetPort": "80"}]), "spec.ports[0].targetPort", INVALID, "one letter"),
    ("E19", service(ports=[{"port": 80, "targetPort": "a--b"}]), "spec.ports[0].targetPort", INVALID, ""),
    ("E20", service(ports=[{"port": 80, "appProtocol": "-x"}]), "spec.ports[0].appProtocol", INVALID, ""),
    ("E21", two_ports({}, {"port": 80}), "spec.ports[1]", DUPLICATE, '"port":80'),
    (
        "E22",
        two_ports({"nodePort": 30080}, {"nodePort": 30080}, type="NodePort"),
        "spec.ports[1].nodePort",
        DUPLICATE,
        "30080",
    ),
    ("E23", service(ports=[{"port": 80, "nodePort": 30080}]), "spec.ports[0].nodePort", FORBIDDEN, "ClusterIP"),
    ("E24", service(selector={"a b": "c"}), "spec.selector", INVALID, "name part"),
    ("E24", service(selector={"a": "c!"}), "spec.selector", INVALID, "label value"),
    ("E25", service(sessionAffinity="Cookie"), "spec.sessionAffinity", NOT_SUPPORTED, '"ClientIP", "None"'),
    ("E26", with_spec(service(), sessionAffinityConfig={}), "spec.sessionAffinityConfig", FORBIDDEN, ""),
    *(
        (
            "E27",
            service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": seconds}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            INVALID,
            "86400",
        )
        for seconds in (0, -1, 86401)
    ),
    ("E28", service(clusterIPs=["10.96.0.21"]), "spec.clusterIPs", INVALID, "first value must match `clusterIP`"),
    ("E29", service(clusterIP=None), "spec.clusterIPs", INVALID, "must be empty when `clusterIP` is not specified"),
    ("E30", service(clusterIPs=None), "spec.clusterIPs", REQUIRED, ""),
    ("E31", service(clusterIPs=[*DUAL, "10.96.0.21"]), "spec.clusterIPs", INVALID, "up to 2"),
    ("E31", service(clusterIPs=[ADDRESS, "10.96.0.21"]), "spec.clusterIPs", INVALID, "one IP for each IP family"),
    ("E31", service(clusterIP="None", clusterIPs=["None", ADDRESS]), "spec.clusterIPs", INVALID, "'None'"),
    ("E32", service(clusterIP="web", clusterIPs=["web"]), "spec.clusterIPs[0]", INVALID, "valid IP address"),
    ("E32", service(clusterIP="10.96.00.1", clusterIPs=["10.96.00.1"]), "spec.clusterIPs[0]", INVALID, "leading zeros"),
    (
        "E32",
        service(clusterIP="::ffff:10.96.0.1", clusterIPs=["::ffff:10.96.0.1"]),
        "spec.clusterIPs[0]",
        INVALID,
        "IPv4-mapped",
    ),
    ("E32", service(clusterIP="fe80::1%eth0", clusterIPs=["fe80::1%eth0"]), "spec.clusterIPs[0]", INVALID, ""),
    ("E33", service(ipFamilies=["IPv5"]), "spec.ipFamilies[0]", NOT_SUPPORTED, '"IPv4", "IPv6"'),
    ("E33", service(ipFamilies=["IPv4", "IPv4"]), "spec.ipFamilies[1]", DUPLICATE, ""),
    ("E34", service(ipFamilyPolicy="Both"), "spec.ipFamilyPolicy", NOT_SUPPORTED, "SingleStack"),
    *(
        ("E35", service(externalIPs=[address]), "spec.externalIPs[0]", INVALID, fragment)
        for address, fragment in (
            ("0.0.0.0", "unspecified"),
            ("::", "unspecified"),
            ("127.0.0.1", "loopback"),
            ("::1", "loopback"),
            ("169.254.1.1", "link-local range"),
            ("fe80::1", "link-local range"),
            ("224.0.0.5", "link-local multicast"),
            ("ff02::1", "link-local multicast"),
            ("web", "valid IP address"),
            ("203.0.113.010", "leading zeros"),
        )
    ),
    ("E37", service(type="Magic"), "spec.type", NOT_SUPPORTED, '"ClusterIP", "ExternalName"'),
    ("E38", service(loadBalancerSourceRanges=["10.0.0.0/8"]), "spec.loadBalancerSourceRanges", FORBIDDEN, ""),
    (
        "E38",
        service(annotations={SOURCE_RANGES: "10.0.0.0/8"}),
        f"metadata.annotations[{SOURCE_RANGES}]",
        FORBIDDEN,
        "LoadBalancer",
    ),
    (
        "E38",
        service(type="LoadBalancer", annotations={SOURCE_RANGES: "10.0.0.0/8,x"}),
        f"metadata.annotations[{SOURCE_RANGES}]",
        INVALID,
        "CIDR",
    ),
    *(
        ("E38", balancer(loadBalancerSourceRanges=[cidr]), "spec.loadBalancerSourceRanges[0]", INVALID, "")
        for cidr in ("10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "010.0.0.0/8", "10.0.0.0/08", "::ffff:10.0.0.0/104", "x")
    ),
    ("E39", service(allocateLoadBalancerNodePorts=False), "spec.allocateLoadBalancerNodePorts", FORBIDDEN, ""),
    (
        "E39",
        with_spec(balancer(), allocateLoadBalancerNodePorts=None),
        "spec.allocateLoadBalancerNodePorts",
        REQUIRED,
        "",
    ),
    ("E40", service(loadBalancerClass="example.com/a"), "spec.loadBalancerClass", FORBIDDEN, "LoadBalancer"),
    ("E40", balancer(loadBalancerClass="a b"), "spec.loadBalancerClass", INVALID, ""),
    ("E41", service(externalTrafficPolicy="Local"), "spec.externalTrafficPolicy", INVALID, "externally-accessible"),
    ("E42", balancer(externalTrafficPolicy="Some"), "spec.externalTrafficPolicy", NOT_SUPPORTED, '"Cluster", "Local"'),
    ("E43", balancer(healthCheckNodePort=30000), "spec.healthCheckNodePort", INVALID, "'Local'"),
    ("E45", service(internalTrafficPolicy="Some"), "spec.internalTrafficPolicy", NOT_SUPPORTED, '"Cluster", "Local"'),
    ("E46", service(trafficDistribution="Random"), "spec.trafficDistribution", NOT_SUPPORTED, "PreferClose"),
    ("E47", service(annotations={MODE: "Auto", HINTS: "Disabled"}), f"metadata.annotations[{MODE}]", INVALID, ""),
    # what defaulting leaves to nobody, but a server that skipped it would let through
    ("E18", with_spec(service(), ports=[{"port": 80, "targetPort": 80}]), "spec.ports[0].protocol", REQUIRED, ""),
    ("E23", service(type="NodePort", ports=[{"port": 80, "nodePort": -1}]), "spec.ports[0].nodePort", INVALID, "65535"),
    ("E25", with_spec(service(), sessionAffinity=None), "spec.sessionAffinity", REQUIRED, ""),
    (
        "E27",
        with_spec(service(), sessionAffinity="ClientIP"),
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
        REQUIRED,
        "ClientIP",
    ),
    ("E33", service(ipFamilies=["IPv4", "IPv6", "IPv4"]), "spec.ipFamilies", INVALID, "up to 2"),
    ("E42", with_spec(balancer(), externalTrafficPolicy=None), "spec.externalTrafficPolicy", REQUIRED, "accessible"),
    (
        "E43",
        balancer(externalTrafficPolicy="Local", healthCheckNodePort=65536),
        "spec.healthCheckNodePort",
        INVALID,
        "65535",
    ),
    ("E45", with_spec(service(), internalTrafficPolicy=None), "spec.internalTrafficPolicy", REQUIRED, ""),
    ("E48", service(name="Web"), "metadata.name", INVALID, "DNS-1123 label"),
    ("E48", service(name="a" * 64), "metadata.name", INVALID, "63"),
    ("E48", service(name="a.b"), "metadata.name", INVALID, ""),
    ("E48", service(name=""), "metadata.name", REQUIRED, "generateName"),
    ("E49", with_ingress(service(), {"ip": "1.2.3.4", "ipMode": "VIP"}), "status.loadBalancer.ingress", FORBIDDEN, ""),
    *(
        ("E50", with_ingress(balancer(), ingress), f"status.loadBalancer.ingress[0].{field}", reason, "")
        for ingress, field, reason in (
            ({"ip": "1.2.3.4", "ipMode": ""}, "ipMode", REQUIRED),
            ({"hostname": "a.b", "ipMode": "VIP"}, "ipMode", FORBIDDEN),
            ({"ip": "1.2.3.4", "ipMode": "Magic"}, "ipMode", NOT_SUPPORTED),
            ({"hostname": "1.2.3.4"}, "hostname", INVALID),
            ({"hostname": "a_b"}, "hostname", INVALID),
            ({"ip": "one", "ipMode": "VIP"}, "ip", INVALID),
        )
    ),
]


@pytest.mark.parametrize(
    ("obj", "field", "reason", "fragment"), [row[1:] for row in ROWS], ids=[f"{row[0]}-{row[2]}" for row in ROWS]
)
def test_a_wrong_service_is_refused_for_the_right_reason(obj: Object, field: str, reason: str, fragment: str) -> None:
    found = [
        cause for cause in validation.validate_create(SERVICES, obj) if (cause.field, cause.reason) == (field, reason)
    ]
    assert found, validation.validate_create(SERVICES, obj)
    assert fragment in found[0].message


@pytest.mark.parametrize(
    "obj",
    [
        service(),
        service(name="1web"),  # since 1.36 a name may begin with a digit
        service(ports=None, clusterIP="None", clusterIPs=["None"]),
        service(type="ExternalName", externalName="example.com.", ports=None),
        service(type="NodePort", ports=[{"port": 80, "nodePort": 30080}]),
        two_ports({"port": 53, "protocol": "UDP"}, {"port": 53}, type="NodePort"),
        two_ports({"protocol": "UDP", "nodePort": 30053}, {"nodePort": 30053}, type="NodePort"),
        service(sessionAffinity="ClientIP"),
        service(externalIPs=["203.0.113.5", "2001:db8::5"]),
        service(clusterIPs=DUAL, ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack"),
        balancer(loadBalancerSourceRanges=[" 10.0.0.0/8 ", "fd00::/8"], loadBalancerClass="example.com/a"),
        balancer(externalTrafficPolicy="Local", healthCheckNodePort=30001),
        with_ingress(balancer(), {"ip": "1.2.3.4", "ipMode": "VIP"}, {"hostname": "lb.example.com"}),
        service(trafficDistribution="PreferSameNode", internalTrafficPolicy="Local"),
        service(ports=[{"port": 80, "targetPort": "http-alt", "appProtocol": "kubernetes.io/h2c"}]),
        service(annotations={MODE: "Auto", HINTS: "Auto"}),
    ],
)
def test_a_right_service_is_accepted(obj: Object) -> None:
    assert validation.validate_create(SERVICES, obj) == []


# --- updates ---------------------------------------------------------------------------------------------------

DUAL_SERVICE = service(clusterIPs=DUAL, ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack")
SINGLE_SERVICE = service(ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
LOCAL = balancer(externalTrafficPolicy="Local", healthCheckNodePort=30001)
CLASSED = balancer(loadBalancerClass="example.com/a")

UPDATES: list[tuple[str, Object, Object, str, str, str]] = [
    (
        "D16",
        SINGLE_SERVICE,
        with_spec(SINGLE_SERVICE, clusterIP="10.96.0.30", clusterIPs=["10.96.0.30"]),
        "spec.clusterIPs[0]",
        INVALID,
        "may not change once set",
    ),
    ("D16", SINGLE_SERVICE, with_spec(SINGLE_SERVICE, ipFamilies=["IPv6"]), "spec.ipFamilies[0]", INVALID, "once set"),
    (
        "D16",
        DUAL_SERVICE,
        with_spec(DUAL_SERVICE, clusterIPs=[ADDRESS, "fd00:96::21"]),
        "spec.clusterIPs[1]",
        INVALID,
        "may not change once set",
    ),
    (
        "D15",
        DUAL_SERVICE,
        with_spec(DUAL_SERVICE, clusterIPs=[ADDRESS], ipFamilies=["IPv4"]),
        "spec.ipFamilyPolicy",
        INVALID,
        "SingleStack",
    ),
    (
        "D17",
        SINGLE_SERVICE,
        with_spec(SINGLE_SERVICE, clusterIP=None, clusterIPs=None),
        "spec.clusterIPs[0]",
        INVALID,
        "unset",
    ),
    (
        "D21",
        SINGLE_SERVICE,
        with_spec(SINGLE_SERVICE, clusterIP="None", clusterIPs=["None"]),
        "spec.clusterIPs[0]",
        INVALID,
        "may not change once set",
    ),
    (
        "E40",
        CLASSED,
        with_spec(CLASSED, loadBalancerClass="example.com/b"),
        "spec.loadBalancerClass",
        INVALID,
        "once set",
    ),
    ("E40", CLASSED, with_spec(CLASSED, loadBalancerClass=None), "spec.loadBalancerClass", INVALID, "once set"),
    (
        "E44",
        LOCAL,
        with_spec(LOCAL, healthCheckNodePort=30002),
        "spec.healthCheckNodePort",
        FORBIDDEN,
        "field is immutable",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "field", "reason", "fragment"),
    [row[1:] for row in UPDATES],
    ids=[f"{row[0]}-{row[3]}" for row in UPDATES],
)
def test_what_may_not_change_does_not(old: Object, new: Object, field: str, reason: str, fragment: str) -> None:
    found = [c for c in validation.validate_update(SERVICES, new, old) if (c.field, c.reason) == (field, reason)]
    assert found, validation.validate_update(SERVICES, new, old)
    assert fragment in found[0].message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SINGLE_SERVICE, SINGLE_SERVICE),
        (SINGLE_SERVICE, DUAL_SERVICE),
        (DUAL_SERVICE, SINGLE_SERVICE),
        (SINGLE_SERVICE, service(type="ExternalName", externalName="a.b")),
        (service(type="ExternalName", externalName="a.b"), SINGLE_SERVICE),
        (
            service(clusterIP="None", clusterIPs=["None"], ipFamilies=["IPv4"]),
            service(
                clusterIP="None", clusterIPs=["None"], ipFamilies=["IPv6", "IPv4"], ipFamilyPolicy="RequireDualStack"
            ),
        ),
        (service(), balancer(loadBalancerClass="example.com/a")),
        (service(name="Old_Name"), service(name="Old_Name")),
    ],
)
def test_what_may_change_does(old: Object, new: Object) -> None:
    assert validation.validate_update(SERVICES, new, old) == []


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        ({"externalIPs": ["203.0.113.010"]}, {"externalIPs": ["203.0.113.010", "203.0.113.11"]}),
        ({"clusterIP": "10.96.0.010", "clusterIPs": ["10.96.0.010"]}, {"selector": {"a": "b"}}),
        ({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]}, {"selector": {"a": "b"}}),
    ],
)
def test_values_stored_under_looser_rules_may_stay(spec: Object, changed: Object) -> None:
    old = service(**spec)
    assert validation.validate_create(SERVICES, old)
    assert validation.validate_update(SERVICES, with_spec(old, **changed), old) == []
