"""`clusterip status`: how a cluster stands, as far as it can be seen from here."""

import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from clusterip.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from clusterip.lab.status import Report

HELP = """How the cluster stands: its processes, what the API holds, how full the ranges are, and what each node's proxy
last did. Drift is what others have changed in a node's rules.

Exit status: 0 all is well; 1 something is not.
"""
WIDTH = 90  # columns that the widest table needs


@click.command(help=HELP)
@options.cluster
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(name: str, output: str) -> None:
    import asyncio

    from clusterip.lab.state import existing
    from clusterip.lab.status import document, report

    state, plan = existing(name)
    found = asyncio.run(report(plan, state))
    if output == "json":
        click.echo(json.dumps(document(found), indent=2))
    else:
        _print(found)
    sys.exit(0 if found.well else 1)


def _print(report: "Report") -> None:
    from rich.console import Console

    to = Console(highlight=False)
    to.width = max(to.width, WIDTH) if sys.stdout.isatty() else 200  # a cell that is cut tells nothing
    to.print(f"cluster {report.name}: {'[green]well[/]' if report.well else '[red]not well[/]'}")
    if not report.supervisor:
        again = f"clusterip up --name {report.name}"
        to.print(
            f"[red]its supervisor is dead:[/] nothing starts again what ends. {again} begins anew, without its data."
        )
    to.print()
    _print_table(to, ("COMPONENT", "STATE", "PID", "SINCE", "RESTARTS", "LAST END"), _components(report))
    to.print()
    _print_api(to, report)
    to.print()
    columns = ("NODE", "ADDRESS", "READY", "PODS", "PROXY", "LAST SYNC", "REVISION", "RULES", "DRIFT")
    _print_table(to, columns, _nodes(report))
    for node in report.nodes:
        if node.trouble and not node.proxy_error:
            to.print(f"  {node.name}: {node.trouble}", style="red", markup=False)
        for line in node.proxy.get("drift", ())[:10]:
            to.print(f"  {node.name}: {line}", markup=False)


def _components(report: "Report") -> list[tuple[str, ...]]:
    now = time.time()
    return [
        (
            c.name,
            "[green]alive[/]" if c.alive else "[red]dead[/]",
            str(c.pid or ""),
            _ago(now - c.since) if c.alive else "",
            str(c.restarts),
            c.last_end,
        )
        for c in report.components
    ]


def _print_api(to: "Console", report: "Report") -> None:
    if report.api is None:
        to.print(f"API: {report.api_error}", style="red", markup=False)
        return
    api = report.api
    to.print(f"API {api.server} at revision {api.revision}: {api.services} Services, {api.slices} EndpointSlices, "
             f"{api.endpoints} ready endpoints")  # fmt: skip
    to.print()
    rows = [(b.range, b.band, str(b.used), str(b.available)) for b in api.bands]
    _print_table(to, ("RANGE", "BAND", "USED", "AVAILABLE"), rows)


def _nodes(report: "Report") -> list[tuple[str, ...]]:
    from rich.markup import escape

    return [
        (
            node.name,
            ", ".join(node.addresses),
            "[green]yes[/]" if node.ready else "[red]no[/]",
            str(node.pods),
            f"[red]{escape(node.proxy_error)}[/]" if node.proxy_error else str(node.proxy.get("mode", "")),
            _when(node.proxy.get("lastSync")),
            str(node.proxy.get("revision", "")),
            str(node.proxy.get("rules", "")),
            _drift(node.proxy.get("drift")),
        )
        for node in report.nodes
    ]


def _drift(lines: Sequence[str] | None) -> str:
    if lines is None:
        return ""
    return f"[yellow]{len(lines)} difference{'s' * (len(lines) != 1)}[/]" if lines else "none"


def _when(moment: float | str | None) -> str:
    """How long ago; the proxy tells Unix time or RFC 3339."""
    if not moment:
        return ""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment).astimezone(UTC).timestamp()
    return f"{_ago(time.time() - moment)} ago"


def _ago(seconds: float) -> str:
    seconds = max(seconds, 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def _print_table(to: "Console", columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    to.print(table)
