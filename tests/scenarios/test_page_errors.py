"""What is written wrong on a page is told with the file and the line."""

from pathlib import Path

import pytest
from tests.scenarios.page import Page, PageError, parse

GOOD = """# A title

rows: B1

```node
zone: z1
```

```objects
Service web:
  clusterIP: 10.96.0.10
  ports: [80]
Slice web:
  ports: [8080]
  endpoints: [a, b leaving, x for zone z1]
```

```packets
open t: c -> web:80 : a as itself
c -> web:80 sending 9 bytes : a x:81 as itself, b as the node  # a comment
  in ipvs, ebpf : refused
```

## Then

```objects
Service web: gone
```

```packets
on t : a as itself
c -> 10.96.0.10:80 : passed
```
"""


def read(text: str) -> Page:
    return parse(text, Path("page.md"))


def test_a_page_is_read() -> None:
    page = read(GOOD)
    assert (page.title, page.rows, [s.title for s in page.steps]) == ("A title", ("B1",), ["", "Then"])
    opened, asked = page.steps[0].lines
    assert (opened.flow, opened.goes_on, asked.size) == ("t", False, 9)
    assert str(asked.answer) == "a:8080 as itself, b:8080 as the node, x:81 as itself"
    assert str(asked.answer_in("ipvs")) == "refused"
    assert asked.answer_in("iptables") == asked.answer
    assert page.steps[1].lines[0].goes_on
    [kept] = read(GOOD.replace("on t : a as", "c -> 10.96.0.9:80 : each one of a b as")).steps[1].lines[:1]
    assert (kept.answer.sticky, kept.answer.apart) == (True, True)
    assert page.steps[1].state.services == {}


@pytest.mark.parametrize(
    ("there", "instead", "line", "said"),
    [
        ("# A title", "A title", 1, "begins with '# '"),
        ("rows: B1", "rows B1", 1, "one line 'rows: B1 B2'"),
        ("rows: B1", "rows: B1 C2", 3, "C2: rows are written like"),
        ("rows: B1", "rows:", 3, "nothing: rows"),
        ("```node", "```yaml", 5, "block 'yaml'"),
        ("zone: z1", "zones: z1", 6, "node: zones: the fields are detector"),
        ("zone: z1", "zone: [", 7, "YAML"),
        ("zone: z1", "zone", 6, "not one YAML mapping"),
        ("zone: z1\n", "zone: z1\nzone: z2\n", 6, "zone is given twice"),
        ("Slice web:", "Slices web:", 10, "write 'Service NAME'"),
        ("ports: [80]", "ports: [80/icmp]", 10, "port '80/icmp' is not written like"),
        ("ports: [8080]", "port: [8080]", 10, "Slice web: port: the fields are"),
        ("b leaving", "b left", 10, "endpoint 'b left' is not written like"),
        ("b leaving", "bb leaving", 10, "endpoint 'bb leaving': members are"),
        ("Service web: gone", "Service other: gone", 27, "there is none that could go"),
        ("open t: c ->", "open t: d ->", 19, "d: clients are a, b"),
        ("open t: c -> web:80 :", "open t: c web:80 :", 19, "'CLIENT -> DESTINATION"),
        ("c -> 10.96.0.10:80 : passed", "c -> 10.96.0.10:80 = passed", 32, "'CLIENT -> DESTINATION"),
        ("c -> 10.96.0.10:80", "c -> web:80", 32, "web: no Service with an address"),
        ("c -> 10.96.0.10:80", "c -> 10.96.0:80", 32, "Expected 4 octets"),
        ("10.96.0.10:80 : passed", "10.96.0.10:80 : lost", 32, "'lost' is none of refused, dropped, passed"),
        ("a x:81 as itself", "a x:81 as", 20, "'a x:81 as' is none of"),
        ("a x:81 as itself", "a x:http as itself", 20, "backend 'x:http'"),
        ("a x:81 as itself", "a a as itself", 20, "a backend is given twice"),
        ("in ipvs, ebpf", "in ipvs, bpf", 21, "bpf: dataplanes are iptables"),
        ("in ipvs, ebpf", "in ipvs, ipvs", 21, "'in ipvs, ipvs : refused': ipvs has an exception"),
        ("on t :", "on u :", 31, "no flow u was opened further up"),
        ("on t : a as itself", "  in ebpf : refused", 31, "stands below the packet"),
        ("\n```packets\non t", "\n```packets\n```\n\n```packets\non t", 31, "has no packet"),
        ("```objects\nService web: gone\n```\n", "```node\nmasqueradeAll: true\n```\n", 27, "only the zone can change"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(there: str, instead: str, line: int, said: str) -> None:
    assert GOOD.count(there) == 1
    with pytest.raises(PageError) as told:
        read(GOOD.replace(there, instead))
    assert told.value.message.startswith(f"page.md:{line}: ")
    assert said in told.value.message


def test_a_block_that_does_not_end_is_told() -> None:
    with pytest.raises(PageError, match=r"page\.md:30: the packets block has no end"):
        read(GOOD.removesuffix("```\n"))
