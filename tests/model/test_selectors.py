"""Selectors: text to meaning, against a naive reading of the same requirements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.model import objects, selectors
from clusterip.model.resources import EVENTS, NODES, PODS, REPLICA_SETS, SERVICES, Resource
from clusterip.model.status import ApiError, Object

WEB = {"app": "web", "tier": "front", "n": "5", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("!gone", True),
        ("gone", False),
        ("app=web", True),
        ("app==web", True),
        (" app = web , tier = front ", True),
        ("app=web,tier=back", False),
        ("app!=web", False),
        ("gone!=web", True),
        ("gone=", False),
        ("empty=", True),
        ("app in (web,api)", True),
        ("app in (api)", False),
        ("gone in (web)", False),
        ("app notin (api,db)", True),
        ("gone notin (api)", True),
        ("app notin (web)", False),
        ("n>4", True),
        ("n<5", False),
        ("app>1", False),
        ("app in (web), !gone, tier", True),
        ("example.com/app!=x", True),
        ("app in (,web)", True),
    ],
)
def test_a_label_selector_means_what_it_says(text: str, matches: bool) -> None:
    assert selectors.parse_labels(text).matches(WEB) is matches


@pytest.mark.parametrize(
    "text",
    [
        "=web", "app=web,", ",", "app in", "app in web", "app in (web", "app in (web tier", "app web", "app=a=b",
        "!", "!app=web", "a/b/c=d", "app=web tier=front", "n>x", "-a", "app=-", "app in ()x", "(", "app=a b",
    ],
)  # fmt: skip
def test_a_selector_that_cannot_be_read_is_a_bad_request(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        selectors.parse_labels(text)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


KEYS = st.sampled_from(["app", "tier", "x.io/a"])
VALUES = st.sampled_from(["web", "api", "", "a.b-c_d"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)


@given(labels=LABELS, key=KEYS, values=st.lists(VALUES, min_size=1, max_size=3), negated=st.booleans())
def test_sets_agree_with_a_naive_reading(labels: dict[str, str], key: str, values: list[str], negated: bool) -> None:
    text = f"{key} {'notin' if negated else 'in'} ({','.join(values)})"
    naive = not (key in labels and labels[key] in values) if negated else key in labels and labels[key] in values
    assert selectors.parse_labels(text).matches(labels) is naive
    value = objects.LabelSelector(
        match_expressions=(
            objects.LabelSelectorRequirement(key=key, operator="NotIn" if negated else "In", values=tuple(values)),
        )
    )
    assert selectors.matches_selector(value, labels) is naive


@given(labels=LABELS, wanted=LABELS)
def test_equality_agrees_with_a_naive_reading(labels: dict[str, str], wanted: dict[str, str]) -> None:
    naive = wanted.items() <= labels.items()
    text = ",".join(f"{key}={value}" for key, value in wanted.items())
    assert selectors.parse_labels(text).matches(labels) is naive
    assert selectors.matches_selector(objects.LabelSelector(match_labels=wanted), labels) is naive


@given(text=st.text(alphabet="ab=!<>(), in/.-", max_size=20))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    try:
        selectors.parse_labels(text).matches(WEB)
    except ApiError as error:
        if error.code != 400:
            raise


def test_an_empty_selector_matches_everything_and_no_labels_are_fine() -> None:
    assert selectors.matches_selector(objects.LabelSelector(), None)
    assert not selectors.parse_labels("app").matches(None)


POD: Object = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"nodeName": "node-1", "restartPolicy": "Always"},
    "status": {"phase": "Running", "podIP": "10.244.1.5", "podIPs": [{"ip": "10.244.1.5"}]},
}


@pytest.mark.parametrize(
    ("resource", "obj", "text", "matches"),
    [
        (PODS, POD, "", True),
        (PODS, POD, "metadata.name=p", True),
        (PODS, POD, "metadata.name==p,metadata.namespace!=default", False),
        (PODS, POD, "spec.nodeName=node-1,status.phase!=Failed", True),
        (PODS, POD, "spec.nodeName=", False),
        (PODS, {"metadata": {}, "spec": {}}, "spec.nodeName=", True),
        (PODS, POD, "spec.hostNetwork=false", True),
        (PODS, POD, "status.podIPs=10.244.1.5", True),
        (SERVICES, {"metadata": {}, "spec": {"clusterIP": "None", "type": "ClusterIP"}}, "spec.clusterIP!=None", False),
        (SERVICES, {"metadata": {}, "spec": {"type": "NodePort"}}, "spec.type=NodePort", True),
        (NODES, {"metadata": {}, "spec": {"unschedulable": True}}, "spec.unschedulable=true", True),
        (REPLICA_SETS, {"metadata": {}, "status": {"replicas": 3}}, "status.replicas=3", True),
        (
            EVENTS,
            {"metadata": {}, "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "node"}},
            "involvedObject.kind=Pod,involvedObject.name=p,source=node",
            True,
        ),
        (EVENTS, {"metadata": {}, "reason": "a,b"}, r"reason=a\,b", True),
    ],
)
def test_a_field_selector_means_what_it_says(resource: Resource, obj: Object, text: str, matches: bool) -> None:
    assert selectors.parse_fields(text, resource).matches(obj) is matches


@pytest.mark.parametrize(
    ("resource", "text", "fragment"),
    [
        (SERVICES, "spec.nodeName=a", "field label not supported: spec.nodeName"),
        (PODS, "status.hostIP=a", "field label not supported: status.hostIP"),
        (PODS, "metadata.name", "invalid field selector"),
    ],
)
def test_fields_a_kind_cannot_select_by_are_refused(resource: Resource, text: str, fragment: str) -> None:
    with pytest.raises(ApiError, match=fragment) as caught:
        selectors.parse_fields(text, resource)
    assert caught.value.code == 400


def test_a_selector_for_one_name_says_which() -> None:
    selector = selectors.parse_fields("metadata.name=web,spec.type!=ExternalName", SERVICES)
    assert selector.required("metadata.name") == "web"
    assert selector.required("spec.type") is None
