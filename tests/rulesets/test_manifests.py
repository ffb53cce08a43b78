"""API objects as people keep them."""

import json

import pytest

from clusterip.model import objects as o
from clusterip.rulesets import manifests
from clusterip.rulesets.evidence import Origin

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo, creationTimestamp: null}
spec: {clusterIP: 10.96.0.20, ports: [{port: 80}]}
"""


def test_several_documents_give_several_objects_each_with_its_line() -> None:
    text = f"# a comment\n---\n{SERVICE}---\n---\n{SERVICE.replace('web', 'other')}"
    reading = manifests.read(text, Origin("f", 1))
    assert reading.problems == ()
    one, two = reading.values.manifests
    assert isinstance(one.value, o.Service)
    assert one.value.spec.cluster_ip == "10.96.0.20"
    assert (one.namespace, one.name, one.line) == ("demo", "web", 3)
    assert (two.name, two.line) == ("other", 9)


def test_lists_are_taken_apart_however_deep() -> None:
    item = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}}
    nested = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "ServiceList", "items": [item, {**item, "metadata": {"name": "b"}}]},
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}},
        ],
    }
    reading = manifests.read(json.dumps(nested))
    assert [(m.kind, m.namespace, m.name) for m in reading.values.manifests] == [
        ("Service", "default", "a"),
        ("Service", "default", "b"),
        ("Node", "", "n"),
    ]
    assert manifests.of_document(nested).values == reading.values


def test_kinds_that_nobody_reads_are_kept_as_documents() -> None:
    text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\n"
    [found] = manifests.read(text).values.manifests
    assert found.value is None
    assert found.document["mode"] == "iptables"


def test_nothing_of_a_secret_is_kept_but_its_name() -> None:
    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {a: hidden}}\ndata: {password: hidden}\n"
    reading = manifests.read(text)
    assert "hidden" not in repr(reading)
    assert reading.values.manifests[0].name == "s"


def test_a_field_of_the_wrong_type_is_said_and_the_others_are_read() -> None:
    text = SERVICE.replace("port: 80", "port: eighty") + "---\n" + SERVICE
    reading = manifests.read(text, Origin("f.yaml", 1))
    assert [str(problem) for problem in reading.problems] == [
        "f.yaml:1: Service demo/web: spec.ports[0].port: expected `int`, got `str`"
    ]
    assert [m.value is None for m in reading.values.manifests] == [True, False]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (f"{SERVICE}---\nkind: [\n", 7, "YAML: did not find"),
        ("just text\n", 1, "an object was expected"),
        ("kind: Service\n", 1, "apiVersion and kind"),
        ("apiVersion: v1\nkind: Node\nkind: Node\nmetadata: {name: node-1}\n", 1, "given twice"),
        ("apiVersion: 1\nkind: 2\n", 1, "apiVersion and kind"),
    ],
)
def test_what_is_wrong_is_said_and_the_rest_is_kept(text: str, line: int, why: str) -> None:
    reading = manifests.read(text)
    assert [(p.line, why in p.why) for p in reading.problems] == [(line, True)], reading.problems
    assert reading.facts == text.count("kind: Service\nmetadata") + text.count("kind: Node\nkind")


def test_a_document_that_unfolds_without_end_is_refused() -> None:
    text = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(9)
    )
    assert len(manifests.read(text).problems) == 1
