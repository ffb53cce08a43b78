import pytest

from clusterip.model.objects import (
    ConfigMap,
    Container,
    EnvFromSource,
    EnvSourceName,
    EnvVar,
    EnvVarSource,
    KeySelector,
    ObjectFieldSelector,
    ObjectMeta,
    Pod,
    PodSpec,
    Service,
    ServicePort,
    ServiceSpec,
)
from clusterip.node.environment import ConfigError, Context, build, config_maps_of, expand, field_value, service_links

POD = Pod(
    metadata=ObjectMeta(name="web-0", namespace="shop", uid="u-1", labels={"app": "web"}, annotations={"a/b": "note"})
)


POD_IPS, NODE_IPS = ("10.244.1.7", "fd00:1:1::7"), ("192.168.50.11", "fd00:50::11")


def service(
    name: str, namespace: str = "shop", *, ip: str = "10.96.0.20", ports: tuple[ServicePort, ...] = ()
) -> Service:
    spec = ServiceSpec(cluster_ip=ip, ports=ports or (ServicePort(port=80),))
    return Service(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)


KUBERNETES = service("kubernetes", "default", ip="10.96.0.1", ports=(ServicePort(port=443, name="https"),))


def context(pod: Pod = POD, *services: Service) -> Context:
    config = ConfigMap(metadata=ObjectMeta(name="settings"), data={"colour": "red", "size": "9"})
    return Context(pod, POD_IPS, NODE_IPS, "node-1", "web-0", services, {"settings": config})


def container(*env: EnvVar, env_from: tuple[EnvFromSource, ...] = ()) -> Container:
    return Container(name="c", env=env, env_from=env_from)


def config_key(key: str, name: str = "settings", *, optional: bool = False) -> EnvVarSource:
    return EnvVarSource(config_map_key_ref=KeySelector(key=key, name=name, optional=optional))


def test_a_service_is_told_by_its_variables() -> None:
    ports = (ServicePort(port=80, name="http"), ServicePort(port=53, name="dns-udp", protocol="UDP"))
    assert service_links([service("my-app", ports=ports)], "shop", every=True) == {
        "MY_APP_SERVICE_HOST": "10.96.0.20",
        "MY_APP_SERVICE_PORT": "80",
        "MY_APP_SERVICE_PORT_HTTP": "80",
        "MY_APP_SERVICE_PORT_DNS_UDP": "53",
        "MY_APP_PORT": "tcp://10.96.0.20:80",
        "MY_APP_PORT_80_TCP": "tcp://10.96.0.20:80",
        "MY_APP_PORT_80_TCP_PROTO": "tcp",
        "MY_APP_PORT_80_TCP_PORT": "80",
        "MY_APP_PORT_80_TCP_ADDR": "10.96.0.20",
        "MY_APP_PORT_53_UDP": "udp://10.96.0.20:53",
        "MY_APP_PORT_53_UDP_PROTO": "udp",
        "MY_APP_PORT_53_UDP_PORT": "53",
        "MY_APP_PORT_53_UDP_ADDR": "10.96.0.20",
    }


def test_only_services_of_the_namespace_with_an_address_are_told_and_the_api_always() -> None:
    services = [KUBERNETES, service("a"), service("b", ip="None"), service("c", "other"), service("d", ip="")]
    hosts = {k: v for k, v in service_links(services, "shop", every=True).items() if k.endswith("_SERVICE_HOST")}
    assert hosts == {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "A_SERVICE_HOST": "10.96.0.20"}
    few = service_links(services, "shop", every=False)
    assert [k for k in few if k.endswith("_SERVICE_HOST")] == ["KUBERNETES_SERVICE_HOST"]
    for both in ([KUBERNETES, service("kubernetes")], [service("kubernetes"), KUBERNETES]):
        assert service_links(both, "shop", every=True)["KUBERNETES_SERVICE_HOST"] == "10.96.0.20"


def test_later_sources_win_over_earlier_ones() -> None:
    given = container(
        EnvVar(name="size", value="1"), env_from=(EnvFromSource(config_map_ref=EnvSourceName(name="settings")),)
    )
    found = build(context(POD, service("a")), given, {"colour": "of the image", "A_SERVICE_PORT": "1"})
    assert (found["colour"], found["size"], found["A_SERVICE_PORT"]) == ("red", "1", "1")
    assert found["HOSTNAME"] == "web-0"
    assert "/bin" in found["PATH"]


def test_a_prefix_goes_before_every_key_of_a_config_map() -> None:
    source = EnvFromSource(prefix="CFG_", config_map_ref=EnvSourceName(name="settings"))
    assert build(context(), container(env_from=(source,)), {})["CFG_colour"] == "red"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)/x", "1/x"),
        ("$(B)", "$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$$", "$$"),
        ("$A $", "$A $"),
        ("$(A)$(A)", "11"),
        ("$(A", "$(A"),
        ("$()", "$()"),
    ],
)
def test_references_are_expanded_or_stay(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


def test_a_variable_may_use_those_before_it_and_services() -> None:
    env = (
        EnvVar(name="A", value="x"),
        EnvVar(name="B", value="$(A)-$(KUBERNETES_SERVICE_PORT)-$(C)"),
        EnvVar(name="C"),
    )
    assert build(context(POD, KUBERNETES), container(*env), {})["B"] == "x-443-$(C)"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web-0"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['a/b']", "note"),
        ("spec.nodeName", "node-1"),
        ("status.podIP", "10.244.1.7"),
        ("status.podIPs", "10.244.1.7,fd00:1:1::7"),
        ("status.hostIP", "192.168.50.11"),
        ("status.hostIPs", "192.168.50.11,fd00:50::11"),
    ],
)
def test_fields_of_the_pod_are_told(path: str, value: str) -> None:
    assert field_value(context(), path) == value


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (EnvVarSource(field_ref=ObjectFieldSelector(field_path="spec.nothing")), "is not a field"),
        (config_key("nothing"), "couldn't find key nothing in ConfigMap shop/settings"),
        (config_key("colour", "nowhere"), 'configmap "nowhere" not found'),
        (EnvVarSource(secret_key_ref=KeySelector(key="k", name="s")), "keeps no Secrets"),
        (EnvVarSource(), "not supported"),
    ],
)
def test_what_is_not_there_is_told(source: EnvVarSource, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(context(), container(EnvVar(name="X", value_from=source)), {})


def test_what_is_optional_may_be_missing() -> None:
    sources = (config_key("nothing", optional=True), EnvVarSource(secret_key_ref=KeySelector(key="k", optional=True)))
    env_from = (EnvFromSource(config_map_ref=EnvSourceName(name="nowhere", optional=True)), EnvFromSource())
    found = build(context(), container(*(EnvVar(name="X", value_from=s) for s in sources), env_from=env_from), {})
    assert "X" not in found


@pytest.mark.parametrize(
    "source", [EnvFromSource(config_map_ref=EnvSourceName(name="x")), EnvFromSource(secret_ref=EnvSourceName(name="x"))]
)
def test_a_missing_source_of_many_is_told(source: EnvFromSource) -> None:
    with pytest.raises(ConfigError, match='"x" not found'):
        build(context(), container(env_from=(source,)), {})


def test_the_config_maps_of_a_pod_are_known_beforehand() -> None:
    first = container(EnvVar(name="X", value_from=config_key("a", "one")))
    second = container(env_from=(EnvFromSource(config_map_ref=EnvSourceName(name="two")),))
    assert config_maps_of(Pod(spec=PodSpec(containers=(first,), init_containers=(second,)))) == {"one", "two"}
