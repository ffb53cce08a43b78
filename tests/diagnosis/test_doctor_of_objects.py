# ruff: noqa: E501  (a dump is as wide as its program prints it)
"""What the API's objects tell: selection, slices, kinds, policies, ranges: each fault in other clothes."""

import pytest
from tests.diagnosis.clothes import (
    ALL,
    HALF,
    NFT_EMPTY,
    ONE_SLICE,
    SVC,
    WEB_RULES,
    Row,
    as_json,
    findings,
    holds,
    named,
)
from tests.diagnosis.dumps import (
    RUNNING,
    UNREADY,
    manifest,
    pod,
    ready,
    save,
    service,
    slice_of,
)

ROWS = [
    # --- selection ---
    Row("no-endpoints", SVC, (service("web", "10.96.0.20"), slice_of("web", "")), ALL),
    Row("no-endpoints", SVC, (as_json(service("web", "10.96.0.20") + slice_of("web", "")),), ALL),
    Row("no-endpoints", SVC, (NFT_EMPTY,), ALL),
    Row(
        "no-endpoints",
        "virtual server 10.96.0.20:80/tcp",
        ("TCP  10.96.0.20:80 rr\n  -> 10.244.1.5:80  Masq  0  0  0\n",),
        ALL,
    ),
    Row("no-endpoints", SVC, (service("web", "fd00::20", spec=", ipFamilies: [IPv6]"), slice_of("web", "")), ALL),
    Row(
        "selector-matches-no-pod",
        SVC,
        (service("web", "10.96.0.20", selector="App: web"), slice_of("web", ""), pod("p", "app: web", RUNNING)),
        ALL,
    ),
    Row(
        "selector-matches-no-pod",
        SVC,
        (service("web", "10.96.0.20"), slice_of("web", ""), pod("p", "app: web", RUNNING, namespace="prod")),
        ALL,
    ),
    Row("selector-matches-no-pod", SVC, (service("web", "None"), pod("p", "app: api", RUNNING)), ALL),
    Row(
        "all-endpoints-not-ready",
        SVC,
        (service("web", "10.96.0.20"), slice_of("web", ""), pod("p", "app: web", UNREADY)),
        ALL,
    ),
    Row(
        "all-endpoints-not-ready",
        SVC,
        (service("web", "10.96.0.20"), slice_of("web", "{addresses: [10.244.1.5], conditions: {ready: false}}")),
        ALL,
    ),
    Row(
        "all-endpoints-not-ready",
        SVC,
        (
            service("web", "10.96.0.20"),
            pod(
                "p",
                "app: web",
                "phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff}}}]",
            ),
        ),
        ALL,
    ),
    Row(
        "named-port-missing",
        SVC,
        (
            service("web", "10.96.0.20").replace("8080", "http"),
            pod("p", "app: web", RUNNING, "containers: [{name: c, ports: [{name: htpp, containerPort: 8080}]}]"),
        ),
        ALL,
    ),
    Row(
        "named-port-missing",
        "service default/web",
        (
            service("web", "10.96.0.20").replace("8080", "dns"),
            pod(
                "p",
                "app: web",
                RUNNING,
                "containers: [{name: c, ports: [{name: dns, containerPort: 53, protocol: UDP}]}]",
            ),
        ),
        ALL,
    ),
    Row("family-mismatch", SVC, (service("web", "fd00::20"), ONE_SLICE), ALL),
    Row(
        "family-mismatch",
        SVC,
        (
            service("web", "10.96.0.20", spec=", clusterIPs: [10.96.0.20, 'fd00::20'], ipFamilies: [IPv4, IPv6]"),
            ONE_SLICE,
        ),
        ALL,
    ),
    # --- slices ---
    Row(
        "slice-ignored",
        "slice default/web-x",
        (service("web", "10.96.0.20"), slice_of("web", ready("10.244.1.5"), "{name: http, port: 80}")),
    ),
    Row(
        "slice-ignored",
        "slice default/web-x",
        (service("web", "10.96.0.20"), slice_of("web", ready("10.244.1.5"), '{name: ""}')),
    ),
    Row(
        "slice-ignored",
        "slice default/web-x",
        (
            service("web", "10.96.0.20"),
            slice_of("web", ready("10.244.1.5"), more=', service.kubernetes.io/headless: ""'),
        ),
    ),
    Row(
        "slice-ignored",
        "slice default/wbe-x",
        (service("web", "10.96.0.20").replace("selector: {app: web}, ", ""), slice_of("wbe", ready("10.244.1.5"))),
    ),
    Row(
        "slice-ignored",
        "slice default/web-f",
        (
            service("web", "10.96.0.20"),
            ONE_SLICE,
            slice_of("web", ready("db.example.org"), suffix="f").replace("IPv4", "FQDN"),
        ),
    ),
    Row(
        "duplicate-endpoint",
        SVC,
        (service("web", "10.96.0.20"), ONE_SLICE, slice_of("web", ready("10.244.1.5"), suffix="y")),
    ),
    Row(
        "traffic-to-terminating",
        SVC,
        (
            service("web", "10.96.0.20"),
            slice_of("web", "{addresses: [10.244.1.5], conditions: {ready: false, serving: true, terminating: true}}"),
        ),
        ALL,
    ),
    Row(
        "traffic-to-terminating",
        SVC,
        (
            slice_of(
                "web",
                f"{ready('10.244.1.6')}, {{addresses: [10.244.1.5], conditions: {{ready: true, terminating: true}}}}",
            ),
        ),
        HALF,
    ),
    Row(
        "endpoints-truncated",
        SVC,
        (
            manifest(
                """
                apiVersion: v1
                kind: Endpoints
                metadata: {name: web, namespace: default, annotations: {endpoints.kubernetes.io/over-capacity: truncated}}
                subsets: [{addresses: [{ip: 10.244.1.5}], ports: [{port: 80}]}]
                """
            ),
        ),
    ),
    # --- kinds, policies, ranges ---
    Row(
        "externalname-selector",
        SVC,
        (
            manifest(
                "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ExternalName, externalName: a.b, selector: {app: x}}}"
            ),
        ),
    ),
    Row(
        "externalname-selector",
        SVC,
        (
            manifest(
                "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ExternalName, externalName: a.b, ports: [{port: 80, targetPort: 81}]}}"
            ),
        ),
    ),
    Row("headless-port-remap", SVC, (service("web", "None"),)),
    Row(
        "itp-local",
        SVC,
        (
            service("web", "10.96.0.20", spec=", internalTrafficPolicy: Local"),
            slice_of("web", ready("10.244.1.5", ", nodeName: n1")),
        ),
        ALL,
        "n2",
    ),
    Row(
        "itp-local",
        SVC,
        (
            service("web", "10.96.0.20", spec=", internalTrafficPolicy: Local"),
            slice_of("web", ready("10.244.1.5", ", nodeName: n1")),
            manifest("{apiVersion: v1, kind: NodeList, items: [{metadata: {name: n1}}, {metadata: {name: n2}}]}"),
        ),
        HALF,
    ),
    Row(
        "itp-local",
        SVC,
        (
            save(
                "filter",
                [
                    "-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES",
                    '-A KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "default/web has no local endpoints" -m tcp --dport 80 -j DROP',
                ],
            ),
        ),
        ALL,
    ),
    Row(
        "no-local-endpoints",
        SVC,
        (
            save(
                "filter",
                [
                    "-A FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES",
                    '-A KUBE-EXTERNAL-SERVICES -d 203.0.113.7/32 -p tcp -m comment --comment "default/web has no local endpoints" -m tcp --dport 80 -j DROP',
                ],
            ),
        ),
        ALL,
    ),
    Row(
        "no-local-endpoints",
        SVC,
        (
            service("web", "10.96.0.20", spec=", type: NodePort, externalTrafficPolicy: Local"),
            slice_of("web", ready("10.244.1.5", ", nodeName: ip-10-0-0-7")),
            manifest("{apiVersion: v1, kind: Node, metadata: {name: worker-1}}"),
        ),
        ALL,
    ),
    Row("affinity-refresh", SVC, (service("web", "10.96.0.20", spec=", sessionAffinity: ClientIP"),)),
    Row(
        "cidr-overlap",
        "podSubnet 10.96.0.0/11",
        (
            manifest(
                "{apiVersion: kubeadm.k8s.io/v1beta4, kind: ClusterConfiguration, networking: {podSubnet: 10.96.0.0/11, serviceSubnet: 10.96.0.0/12}}"
            ),
        ),
    ),
    Row(
        "cidr-overlap",
        "podCIDR 10.244.1.0/24 of node a",
        (
            manifest(
                "{apiVersion: v1, kind: NodeList, items: [{metadata: {name: a}, spec: {podCIDR: 10.244.1.0/24}}, {metadata: {name: b}, spec: {podCIDR: 10.244.1.0/24}}]}"
            ),
        ),
    ),
    Row(
        "cidr-overlap",
        "address 10.244.9.9",
        (WEB_RULES, "2: eth0: <UP> mtu 1500\n    inet 10.244.9.9/24 scope global eth0\n"),
    ),
    Row(
        "cidr-overlap",
        SVC,
        (
            service("web", "10.244.3.3"),
            manifest(
                "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, clusterCIDR: 10.244.0.0/16}"
            ),
        ),
    ),
    Row(
        "dns-ip-taken",
        SVC,
        (
            service("web", "10.96.0.10"),
            manifest(
                "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, clusterDNS: [10.96.0.10]}"
            ),
        ),
    ),
    Row("dns-ip-taken", SVC, (service("web", "10.96.0.10"), service("kubernetes", "10.96.0.1", 443))),
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_fault_in_other_clothes_has_the_same_id(row: Row) -> None:
    holds(row)


@pytest.mark.parametrize(
    ("labels", "remedy"),
    [
        ("app: webb", "kubectl patch service web"),  # a slip of the pen
        ("App: web", "give the pods' template the labels app=web"),
        ("app: api", "kubectl get deployments,statefulsets,daemonsets"),  # somebody else's
        ("tier: front", "kubectl get deployments,statefulsets,daemonsets"),
    ],
)
def test_another_applications_pods_are_not_offered_as_what_was_meant(labels: str, remedy: str) -> None:
    found = findings(service("web", "10.96.0.20"), slice_of("web", ""), pod("p", labels, RUNNING))
    (one,) = [f for f in found if f.id == "selector-matches-no-pod"]
    assert one.remedy.startswith(remedy)
