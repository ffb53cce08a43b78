"""What a bundle leaves out, and what it keeps."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.diagnosis.bundle import LEFT_OUT, documents, scrubbed, settings
from clusterip.model.objects import Container, EnvVar, ObjectMeta, Pod, PodSpec, Service
from clusterip.model.resources import PODS, SERVICES

SECRET = "hunter2-AbCdEf"


@pytest.mark.parametrize(
    "text",
    [
        f"--db-password={SECRET}",
        f"password: {SECRET}",
        f'token: "{SECRET}"',
        f'{{"api_key": "{SECRET}", "port": 80}}',
        f"Authorization: Bearer {SECRET}",
        f"postgres://app:{SECRET}@db.example:5432/app",
        f"clientSecret = '{SECRET}'",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_is_left_out(text: str) -> None:
    found = scrubbed(f"before {text}\nafter")
    assert SECRET not in found
    assert found.startswith("before ")
    assert found.endswith("after")


@pytest.mark.parametrize(
    "text",
    [
        'I0101 00:00:00.000000       1 proxier.go:800] "SyncProxyRules complete" elapsed="1.2ms"',
        "clusterCIDR: 10.244.0.0/16",
        "10.96.0.20:80 -> [fd00::3]:8080",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert scrubbed(text) == text


@given(st.text())
def test_any_text_can_be_scrubbed_and_once_is_enough(text: str) -> None:
    once = scrubbed(text)
    assert scrubbed(once) == once


def test_of_a_pod_values_of_variables_and_secret_arguments_go_and_names_stay() -> None:
    container = Container(
        name="app", args=("--password", SECRET, "--port", "80"), env=(EnvVar(name="DB_PASS", value=SECRET),)
    )
    meta = ObjectMeta(
        name="web",
        namespace="demo",
        labels={"app": "web"},
        annotations={"kubectl.kubernetes.io/last-applied-configuration": f'{{"x": "{SECRET}"}}'},
    )
    found = documents(PODS, (Pod(metadata=meta, spec=PodSpec(containers=(container,))),))
    assert SECRET not in json.dumps(found)
    [item] = found["items"]
    assert item["metadata"] == {"name": "web", "namespace": "demo", "labels": {"app": "web"}}
    [told] = item["spec"]["containers"]
    assert told["env"] == [{"name": "DB_PASS", "value": LEFT_OUT}]
    assert told["args"] == ["--password", LEFT_OUT, "--port", "80"]


def test_annotations_that_decide_about_a_service_stay() -> None:
    meta = ObjectMeta(name="web", namespace="demo", annotations={"service.kubernetes.io/topology-mode": "Auto"})
    [item] = documents(SERVICES, (Service(metadata=meta),))["items"]
    assert item["metadata"]["annotations"] == {"service.kubernetes.io/topology-mode": "Auto"}


def test_of_all_settings_those_that_matter_are_kept() -> None:
    kept = "net.ipv4.ip_forward = 1\nnet.ipv4.conf.eth0.rp_filter = 2\nnet.netfilter.nf_conntrack_max = 9\n"
    assert settings(f"kernel.hostname = x\n{kept}") == kept
