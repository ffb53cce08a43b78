"""What came back against what the API lets one expect. Pure."""

from typing import assert_never

from clusterip.lab.check.values import Cell, Client, Expect, Expectation, Outcome, Report, Row, Saw, Verdict


def verdict(outcome: Outcome, expectation: Expectation) -> Verdict:
    """Silence fits every expectation of a UDP port but a refusal: a kernel that refuses says so at once."""
    match outcome.saw, expectation.expect:
        case (Saw.NOT_TRIED | Saw.CLIENT_GONE, _):
            return Verdict.UNKNOWN
        case Saw.REACHED, Expect.REACH:
            return Verdict.OK
        case Saw.SILENT, Expect.REACH:
            return Verdict.UNKNOWN
        case Saw.REFUSED, Expect.REFUSE | Expect.NOT_REACH:
            return Verdict.EMPTY
        case (Saw.TIMED_OUT | Saw.SILENT | Saw.DROPPED | Saw.UNREACHABLE, Expect.NOT_REACH):
            return Verdict.EMPTY
        case (Saw.TIMED_OUT | Saw.SILENT | Saw.DROPPED, Expect.DROP):
            return Verdict.KEPT_LOCAL
        case _:
            return Verdict.WRONG


def cell(client: Client, outcome: Outcome, expectation: Expectation) -> Cell:
    return Cell(client, outcome, expectation, verdict(outcome, expectation))


def seen(outcome: Outcome) -> str:
    """As people say it: "refused after 0.3 ms"."""
    after = f"after {_duration(outcome.seconds)}"
    match outcome.saw:
        case Saw.REACHED:
            words = f"reached in {_duration(outcome.seconds)}"
        case Saw.REFUSED:
            words = f"refused {after}"
        case Saw.TIMED_OUT:
            words = f"no answer {after}"
        case Saw.SILENT:
            words = f"silence for {_duration(outcome.seconds)}"
        case Saw.DROPPED:
            words = "dropped by its own node's rules"
        case Saw.UNREACHABLE:
            words = f"unreachable {after}"
        case Saw.NOT_TRIED | Saw.CLIENT_GONE:
            words = "not tried"
        case _:
            assert_never(outcome.saw)
    return f"{words} ({outcome.detail})" if outcome.detail else words


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def document(report: Report) -> dict[str, object]:
    """The report as JSON; `clusterip check --help` documents it."""
    return {
        "allReach": report.all_reach,
        "seconds": round(report.seconds, 3),
        "counts": {v.value: report.count(v) for v in Verdict},
        "clients": [{"name": c.name, "kind": c.kind.value, "node": c.node} for c in report.clients],
        "ports": [_row(row) for row in report.rows],
    }


def _row(row: Row) -> dict[str, object]:
    target = row.target
    return {
        "service": f"{target.namespace}/{target.service}",
        "portName": target.port_name,
        "protocol": target.protocol,
        "address": target.address,
        "port": target.port,
        "kind": target.kind.value,
        "nodePortOf": target.node or None,
        "results": [
            {
                "client": c.client.name,
                "verdict": c.verdict.value,
                "saw": c.outcome.saw.value,
                "milliseconds": round(c.outcome.seconds * 1000, 3),
                "detail": c.outcome.detail,
                "expected": c.expectation.expect.value,
                "because": c.expectation.why,
            }
            for c in row.cells
        ],
    }
