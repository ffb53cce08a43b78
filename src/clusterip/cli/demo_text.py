"""How the demo looks: one renderer for a terminal and for a pipe.

rich leaves the colours out when nobody can see them; everything that a colour says is said by a word or a sign too.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from rich.console import Console
from rich.status import Status
from rich.text import Text

from clusterip.lab.demo.values import (
    Bars,
    Claim,
    Counters,
    Explained,
    Manifest,
    Packets,
    Ran,
    Say,
    Seen,
    Shown,
    Title,
    Wait,
)

WIDTH = 100  # columns at most: longer lines are hard to follow
MARK = "bold yellow"
BAR = 30  # columns of the longest bar


@dataclass(slots=True)  # not frozen: it grows as claims come
class Tally:
    """The claims of one title."""

    title: str
    claims: list[Claim] = field(default_factory=list)

    @property
    def held(self) -> int:
        return sum(claim.held for claim in self.claims)


def console() -> Console:
    plain = Console(highlight=False)
    return Console(highlight=False, width=min(plain.width, WIDTH) if plain.is_terminal else WIDTH)


def folded(line: str, first: int, following: int) -> list[str]:
    """Pieces of at most so many columns, broken where a listing changes its subject: before a rule's comment, before
    the second direction of a connection; else between words; else anywhere."""
    pieces, width = [], first
    while len(line) > width:
        subject = max(line.rfind(mark, 1, width + 1) for mark in (" /* ", " src="))
        at = subject if subject > 0 else line.rfind(" ", 1, width + 1)
        pieces.append((line[:at] if at > 0 else line[:width]).rstrip())
        line = line[at + 1 :] if at > 0 else line[width:]
        width = following
    return [*pieces, line]


def _cut(line: str, width: int, end: str) -> str:
    return line if len(line) <= width else line[: width - len(end)].rstrip() + end


class Renderer:
    """`pause`: seconds after a claim; a title has twice as long."""

    def __init__(self, to: Console, pause: float = 0.0) -> None:
        self._to = to
        self._pause = pause if to.is_terminal else 0.0
        self._unicode = "utf" in to.encoding.lower()
        self._spinner: Status | None = None
        self._begun = False  # something was shown since the title
        self.tallies: list[Tally] = []

    def show(self, shown: Shown) -> None:
        self.stop_waiting()
        match shown:
            case Title(text):
                self.tallies.append(Tally(text))
                self._title(f"{len(self.tallies)}  {text}")
            case Say(text):
                if self._begun:
                    self._to.print()
                self._lines(Text(text), "")
            case Wait(text):
                if self._to.is_terminal:
                    self._spinner = self._to.status(Text(text, style="dim"))
                    self._spinner.start()
            case Ran():
                self._ran(shown)
            case Manifest(name, text):
                self._to.print(Text(f"  {name}", style="bold"))
                self._output(text.splitlines(), ())
            case Packets(rows):
                self._packets(rows)
            case Explained(rows):
                self._explained(rows)
            case Counters(rows):
                self._explained((f"-j {r.rule}", f"{r.before} -> {r.after} packets") for r in rows)
            case Bars(rows):
                self._bars(rows)
            case Claim():
                self._claim(shown)
            case _:
                assert_never(shown)
        self._begun = not isinstance(shown, Title)

    def stop_waiting(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def _rest(self, times: float = 1.0) -> None:
        if self._pause:
            time.sleep(self._pause * times)

    def _title(self, text: str) -> None:
        line = "─" if self._unicode else "-"
        head = f"{line * 2} {text} "
        self._to.print()
        self._to.print(Text(head + line * (self._to.width - len(head)), style="bold cyan", no_wrap=True))
        self._rest(2)

    def _lines(self, text: Text, first: str, following: str = "", style: str = "") -> None:
        """Wrap between words; what follows the first line is indented by `following`."""
        for number, line in enumerate(text.wrap(self._to, self._to.width - max(len(first), len(following)))):
            line.rstrip()
            self._to.print(Text.assemble((following if number else first, style), line), soft_wrap=True)

    def _ran(self, ran: Ran) -> None:
        self._lines(Text(ran.command, style="bold"), f"  {ran.prompt} ", "      ", style="cyan")
        if self._is_table(ran):
            for line in ran.lines:
                self._output((_cut(line, self._to.width - 4, "…" if self._unicode else "..."),), ran.marks)
        else:
            self._output(ran.lines, ran.marks)
        if len(ran.lines) < len(ran.all_lines):
            self._to.print(Text(f"    ({len(ran.lines)} of {len(ran.all_lines)} lines)", style="dim"))
        if ran.status:
            self._to.print(Text(f"    (exit status {ran.status})", style="dim"))
        self._rest()

    @staticmethod
    def _is_table(ran: Ran) -> bool:
        """Its columns stay under each other; what is far to the right matters least."""
        return ran.command.startswith("kubectl get") and "jsonpath" not in ran.command

    def _output(self, lines: Iterable[str], marks: Iterable[str]) -> None:
        words = [mark for mark in marks if mark]
        for line in lines:
            for number, part in enumerate(folded(line, self._to.width - 4, self._to.width - 8)):
                text = Text(part)
                text.highlight_words(words, style=MARK)
                self._to.print(Text.assemble("        " if number else "    ", text), soft_wrap=True)

    def _packets(self, rows: tuple[Seen, ...]) -> None:
        where = max(len(row.where) for row in rows)
        ends = max(len(row.packet.ends) for row in rows)
        for row in rows:
            source, _, destination = row.packet.ends.partition(" > ")
            line = Text(f"    {row.where:<{where}}  ")
            line.append(source, style=MARK if row.changed == "source" else "")
            line.append(" > ")
            line.append(destination, style=MARK if row.changed == "destination" else "")
            line.append(" " * (ends - len(row.packet.ends)) + f"  {row.packet.kind}")
            line.append(f"  <- {row.changed} changed" if row.changed else "", style="yellow")
            self._to.print(line, soft_wrap=True)

    def _explained(self, rows: Iterable[tuple[str, str]]) -> None:
        rows = tuple(rows)
        first = max((len(left) for left, _ in rows), default=0)
        for left, right in rows:
            self._to.print(Text.assemble(f"    {left:<{first}}  ", (right, "yellow")), soft_wrap=True)

    def _bars(self, rows: tuple[tuple[str, int], ...]) -> None:
        most = max((number for _, number in rows), default=0) or 1
        names = max((len(name) for name, _ in rows), default=0)
        block = "█" if self._unicode else "#"
        for name, number in rows:
            bar = (block * round(BAR * number / most), "cyan")
            self._to.print(Text.assemble(f"    {name:<{names}}  ", bar, f" {number}"), soft_wrap=True)

    def _claim(self, claim: Claim) -> None:
        if not self.tallies:
            self.tallies.append(Tally("Before the first step"))
        self.tallies[-1].claims.append(claim)
        good, bad = ("✓", "✗") if self._unicode else ("ok", "NO")
        if claim.held:
            self._lines(Text(claim.text), f"  {good} ", "    ", style="bold green")
        else:
            self._lines(Text(claim.text, style="red"), f"  {bad} ", "    ", style="bold red")
            self._lines(Text(f"seen instead: {claim.saw or 'nothing'}", style="red"), "    ", "    ")
        self._rest()

    def summary(self, seconds: float) -> bool:
        """One line a step. True if every claim held, and there was one."""
        self.stop_waiting()
        self._title("What was claimed, and observed")
        good, bad = ("✓", "✗") if self._unicode else ("ok", "NO")
        for number, tally in enumerate(self.tallies, start=1):
            all_held = tally.held == len(tally.claims)
            sign = (f"  {good if all_held else bad} ", "bold green" if all_held else "bold red")
            count = f"{tally.held} of {len(tally.claims)}"
            wide = self._to.width - 24
            line = (f"{number:>2}  {tally.title:<{wide}.{wide}} {count:>8}", "" if all_held else "red")
            self._to.print(Text.assemble(sign, line))
        held, claims = sum(tally.held for tally in self.tallies), sum(len(tally.claims) for tally in self.tallies)
        style = "bold green" if held == claims else "bold red"
        self._to.print()
        self._to.print(Text(f"  {held} of {claims} claims were observed, in {seconds:.0f} s.", style=style))
        return held == claims > 0

    def say(self, text: str, style: str = "") -> None:
        self.stop_waiting()
        self._lines(Text(text, style=style), "")

    def commands(self, title: str, lines: Iterable[str]) -> None:
        """What the reader can type."""
        self._to.print()
        self._to.print(Text(title, style="bold"))
        for line in lines:
            self._to.print(Text(f"  {line}"), soft_wrap=True)
