"""What the benchmarks share: their rows, their command line, and how results are shown."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.bench.peers import Way

# Rounds until Java's compilers, the broker's and its clients', have little left to do.
WARM_UPS = 3


@dataclass(slots=True, kw_only=True)
class Row:
    """One way to move messages, and how fast it was in each round."""

    key: str
    title: str
    open: Callable[[], AbstractContextManager[Way]]
    messages: int
    skipped: str = ""
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float | None:
        return statistics.median(self.rates) if self.rates else None


def ratio(row: Row | None, base: Row | None) -> float | None:
    """How many times faster than the base: the median over the rounds, for rounds differ."""
    if row is None or base is None or not row.rates or not base.rates:
        return None
    return statistics.median(a / b for a, b in zip(row.rates, base.rates, strict=True))


def verdict(reached: float, least: float, sentence: str) -> str:
    """A promise and whether this run kept it."""
    return f"{'pass' if reached >= least else 'MISS'}: {sentence}, the bar is {least:g}"


def machine() -> str:
    load_average = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores{load_average}, Python {platform.python_version()}"


# --- the command line -------------------------------------------------------------------------


def parser(description: str | None, rows: Sequence[str]) -> argparse.ArgumentParser:
    """What every benchmark can be told."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--messages", type=int, default=400_000)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--only", default="", help=f"of {','.join(rows)}")
    made.add_argument("--markdown", type=Path, help="also write the table to this file")
    return made


def parsed(made: argparse.ArgumentParser, rows: Sequence[str]) -> argparse.Namespace:
    chosen = made.parse_args()
    chosen.only = [name.strip() for name in chosen.only.split(",") if name.strip()] or list(rows)
    unknown = set(chosen.only) - set(rows)
    if unknown:
        made.error(f"no row {', '.join(sorted(unknown))}: there are {', '.join(rows)}")
    numbers = {name: value for name, value in vars(chosen).items() if isinstance(value, int)}
    if min(numbers.values()) < 1:
        made.error(f"{', '.join(f'--{name}' for name in numbers)} are at least 1")
    return chosen


# --- showing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table of results."""

    title: str
    headings: Sequence[str]
    cells: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [self.title, "", f"| {' | '.join(self.headings)} |"]
        lines.append("|---|" + "---:|" * (len(self.headings) - 1))
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in self.cells), ""])

    def drawn(self) -> Table:
        drawn = Table(*self.headings, title=self.title, title_justify="left")
        for column in drawn.columns[1:]:
            column.justify = "right"
        for row in self.cells:
            drawn.add_row(*row)
        return drawn


def publish(
    console: Console, sheets: Sequence[Sheet], notes: Sequence[str], file: Path | None
) -> None:
    """Show the results, and write them to `file` as Markdown."""
    for sheet in sheets:
        console.print(sheet.drawn())
    for note in notes:
        console.print(note, style="bold red" if note.startswith("MISS") else "", highlight=False)
    if file:
        texts = [sheet.markdown() for sheet in sheets]
        file.write_text("\n".join([*texts, *(f"- {note}" for note in notes), ""]), "utf-8")


def progress_on(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def k(rates: Sequence[float], digits: int = 0) -> str:
    """All rounds, in thousands a second."""
    return " ".join(f"{rate / 1000:.{digits}f}" for rate in rates)
