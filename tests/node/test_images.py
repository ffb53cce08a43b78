import pytest

from clusterip.errors import BadInput
from clusterip.model.objects import Container
from clusterip.node import images
from clusterip.node.images import Entry, NotMapped, Runnable

TABLE = (
    Entry("web", argv=("httpd", "-f"), args=("-p", "80")),
    Entry("team.example:5000/*", args=("sleep", "1"), env={"A": "b"}),
)


def container(image: str, *, command: tuple[str, ...] = (), args: tuple[str, ...] = ()) -> Container:
    return Container(name="c", image=image, command=command, args=args)


@pytest.mark.parametrize(
    ("given", "argv"),
    [
        (container("web"), ("httpd", "-f", "-p", "80")),
        (container("web:1.2"), ("httpd", "-f", "-p", "80")),
        (container("web@sha256:00"), ("httpd", "-f", "-p", "80")),
        (container("docker.io/library/web:1"), ("httpd", "-f", "-p", "80")),
        (container("web", args=("-q",)), ("httpd", "-f", "-q")),
        (container("web", command=("true",)), ("true",)),
        (container("web", command=("echo",), args=("a",)), ("echo", "a")),
        (container("team.example:5000/a/b:2"), ("sleep", "1")),
        (container("unknown", command=("echo", "a")), ("echo", "a")),
    ],
)
def test_entry_point_command_and_arguments_combine_as_in_images(given: Container, argv: tuple[str, ...]) -> None:
    found = images.resolve(TABLE, given)
    assert isinstance(found, Runnable)
    assert found.argv == argv


def test_an_image_that_nobody_maps_says_what_to_write_where() -> None:
    found = images.resolve(TABLE, container("registry.example:5000/nginx:1.27"))
    assert isinstance(found, NotMapped)
    assert "`registry.example:5000/nginx: [PROGRAM, ARGUMENT]`" in found.message
    assert "clusterip up --images FILE" in found.message


def test_the_first_entry_that_fits_wins() -> None:
    own = (Entry("clusterip/echo", argv=("mine",)), *images.built_in("/k", "cluster.local"))
    assert images.resolve(own, container("clusterip/echo")) == Runnable(("mine",), {})


@pytest.mark.parametrize("image", ["clusterip/echo", "clusterip/client:v1", "clusterip/dns"])
def test_our_own_images_are_mapped(image: str) -> None:
    assert isinstance(images.resolve(images.built_in("/k", "cluster.local"), container(image)), Runnable)


def test_the_table_is_read_in_its_order() -> None:
    text = "nginx: [nginx, -p, 80]\n'b/*': {argv: [x], args: [1], env: {N: 1}}\n"
    assert images.parse(text, "images.yaml") == (
        Entry("nginx", ("nginx", "-p", "80")),
        Entry("b/*", ("x",), ("1",), {"N": "1"}),
    )
    assert images.parse("", "images.yaml") == images.parse("{}", "images.yaml") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a", "images.yaml: is not YAML"),
        ("[a]", "must map image patterns"),
        ("a: b", "a: must be a list of words"),
        ("a: {argv: b}", "a: argv must be a list"),
        ("a: {argv: [{}]}", "a: argv must be a list"),
        ("a: {argv: [b], env: [c]}", "a: env must be a mapping"),
        ("a: {entrypoint: [b]}", "a: must be a list of words, or a mapping with argv, args, env"),
        ("a: {env: {}}", "a: names no program"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        images.parse(text, "images.yaml")
