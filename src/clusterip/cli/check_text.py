"""A report of `clusterip check`: failures first, then a matrix of dots, one row a Service port, one column a client."""

import itertools
import string
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clusterip.lab.check.values import Cell, ClientKind, Expect, Report, Row, Saw, Verdict
from clusterip.services.table import FrontendKind

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SIGNS = {Verdict.OK: "●", Verdict.EMPTY: "○", Verdict.KEPT_LOCAL: "◌", Verdict.UNKNOWN: "?", Verdict.WRONG: "✗"}
ASCII = {Verdict.OK: "o", Verdict.EMPTY: ".", Verdict.KEPT_LOCAL: "-", Verdict.UNKNOWN: "?", Verdict.WRONG: "X"}
STYLES = {
    Verdict.OK: "green",
    Verdict.EMPTY: "yellow",
    Verdict.KEPT_LOCAL: "dim",
    Verdict.UNKNOWN: "yellow",
    Verdict.WRONG: "bold red",
}
MEANS = {
    Verdict.OK: "reached",
    Verdict.EMPTY: "refused, rightly: nothing is ready",
    Verdict.KEPT_LOCAL: "dropped, rightly: a traffic policy or source ranges",
    Verdict.UNKNOWN: "silence, which says neither yes nor no, or not tried",
    Verdict.WRONG: "not what the API says",
}
_PLACES = {FrontendKind.EXTERNAL_IP: " external IP", FrontendKind.LOAD_BALANCER: " load balancer"}


def print_report(report: Report, console: "Console | None" = None) -> None:
    from rich.console import Console

    to = console or Console(highlight=False, soft_wrap=True)
    signs = SIGNS if "utf" in to.encoding.lower() else ASCII
    if not report.rows:
        to.print("No Service has a ClusterIP port: nothing to reach.")
        return
    if troubles := sorted((row for row in report.rows if _troubles(row)), key=lambda row: not row.count(Verdict.WRONG)):
        for _, alike in itertools.groupby(troubles, key=_trouble):
            _print_trouble(to, tuple(alike), signs)
        to.print()
    _print_matrix(to, report, signs)
    to.print()
    _print_sum(to, report)


def _troubles(row: Row) -> tuple[Cell, ...]:
    return tuple(cell for cell in row.cells if cell.verdict in (Verdict.WRONG, Verdict.EMPTY))


def _said(cell: Cell) -> tuple[bool, str, str]:
    """What a cell says, worst first."""
    return cell.verdict is not Verdict.WRONG, cell.outcome.saw.value, cell.expectation.why


def _trouble(row: Row) -> tuple[str, tuple[tuple[str, tuple[bool, str, str]], ...]]:
    """Equal for rows of a Service port that have the same to say: its ClusterIP, and each node's port."""
    return row.target.owner, tuple((cell.client.name, _said(cell)) for cell in _troubles(row))


def _print_trouble(to: "Console", rows: Sequence[Row], signs: dict[Verdict, str]) -> None:
    """Cells that say the same are told once."""
    from rich.text import Text

    first = rows[0]
    worst = Verdict.WRONG if first.count(Verdict.WRONG) else Verdict.EMPTY
    where = ", ".join(row.target.at for row in rows)
    to.print(Text.assemble((f"{signs[worst]} ", STYLES[worst]), (first.target.owner, "bold"), f"  {where}"))
    for _, alike in itertools.groupby(sorted(_troubles(first), key=_said), key=_said):
        to.print(_told(first, tuple(alike)))


def _told(row: Row, alike: Sequence[Cell]) -> "Text":
    """ "from node-1, node-2: refused after 0.3 ms, but 3 of 3 endpoints are ready"."""
    from rich.text import Text

    from clusterip.lab.check.judge import seen

    quickest = min((cell.outcome for cell in alike), key=lambda outcome: outcome.seconds)
    who = "everywhere" if len(alike) == len(row.cells) else "from " + ", ".join(cell.client.name for cell in alike)
    link = ", but the API says: " if alike[0].verdict is Verdict.WRONG else ", rightly: "
    refused = alike[0].outcome.saw is Saw.REFUSED and alike[0].expectation.expect is Expect.REACH
    closed = "; does anything listen on its targetPort?" if refused else ""
    return Text(f"    {who}: {seen(quickest)}{link}{alike[0].expectation.why}{closed}")


def _where(row: Row) -> str:
    place = f" on {row.target.node}" if row.target.node else ""
    return row.target.at + (_PLACES.get(row.target.kind) or place)


def _letters(number: int) -> list[str]:
    """Names of columns: a, b, ... z, then aa, ab, ..."""
    one = string.ascii_lowercase
    names = itertools.chain(one, (a + b for a in one for b in one))
    return list(itertools.islice(names, number))


def _print_matrix(to: "Console", report: Report, signs: dict[Verdict, str]) -> None:
    from rich.text import Text

    letters = _letters(len(report.clients))
    for letter, client in zip(letters, report.clients, strict=True):
        place = f" on {client.node}" if client.kind is ClientKind.POD else ""
        to.print(Text.assemble((f"{letter:>3}  ", "bold"), f"{client.name}{place}"))
    to.print()
    owner = max(len(row.target.owner) for row in report.rows)
    where = max(len(_where(row)) for row in report.rows)
    to.print(
        Text(" " * (owner + where + 4) + "".join(f"{letter:>3}" for letter in letters) + "   median", style="bold")
    )
    for row in report.rows:
        line = Text(f"{row.target.owner:<{owner}}  {_where(row):<{where}}  ")
        for cell in row.cells:
            line.append(f"{signs[cell.verdict]:>3}", style=STYLES[cell.verdict])
        to.print(line.append(_median(row.cells)))


def _median(cells: Iterable[Cell]) -> str:
    times = sorted(cell.outcome.seconds for cell in cells if cell.verdict is Verdict.OK)
    return f"{times[len(times) // 2] * 1000:6.1f} ms" if times else ""


def _print_sum(to: "Console", report: Report) -> None:
    from rich.text import Text

    signs = SIGNS if "utf" in to.encoding.lower() else ASCII
    for kind in Verdict:
        if number := report.count(kind):
            sign = (f"{signs[kind]:>3}", STYLES[kind])
            to.print(Text.assemble(sign, f" {number:>5}  {MEANS[kind]}"))
    tries = sum(len(row.cells) for row in report.rows)
    ports = f"{len(report.rows)} Service port{'s' * (len(report.rows) != 1)}"
    text = f"{tries} tries of {ports} from {len(report.clients)} clients in {report.seconds:.2f} s: "
    ending = ("all reach", "bold green") if report.all_reach else ("not all reach", "bold red")
    to.print(Text.assemble(text, ending))
    for client in report.gone:
        to.print(f"{client.name} went away before it could be asked everything: check again")
    if report.count(Verdict.WRONG):
        to.print("hint: clusterip status says of each node if its proxy is alive and in step")
