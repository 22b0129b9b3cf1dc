"""Plans and rebalances in the terminal.

Every cell sets its text and its background, so it is readable on a dark terminal and on a light
one; and it says in letters what it says in colour, for a terminal without any.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rocketmq_spark.core.compare import Entry, table
from rocketmq_spark.core.grid import (
    ADDED,
    CELLS,
    DROPPED,
    OWNED,
    Grid,
    Group,
    Row,
    counted,
    printable,
)
from rocketmq_spark.core.model import MessageQueue

# The hues of the web page, in the same order, each with white text.
HUES = ("#2563eb", "#b45309", "#0f766e", "#be185d", "#6d28d9", "#4d7c0f", "#475569", "#7c4a21")
STYLES = {
    DROPPED: "bold #ffffff on #b91c1c",
    OWNED: "bold #ffffff on #15803d",
    ADDED: "bold #000000 on #facc15",
}
_MOST_UNOWNED = 20


def print_grid(console: Console, grid: Grid) -> None:
    console.print(Text(grid.title, "bold"), Text(printable(grid.summary)), sep="\n")
    if grid.changes:
        console.print(_legend())
    drawn = _table(grid, console) if grid.cells <= CELLS else None
    if drawn is None or _width(console, drawn) > console.width:
        drawn = _compact(grid)
    console.print("", drawn, "", sep="\n")
    if grid.hidden:
        console.print(f"{counted(grid.hidden, 'more member')} not shown; --rows shows more.")
    if grid.unowned:
        names = ", ".join(map(str, grid.unowned[:_MOST_UNOWNED]))
        more = len(grid.unowned) - _MOST_UNOWNED
        console.print(
            Text(printable(f"Without a reader: {names}") + (f" and {more:,} more" * (more > 0)))
        )


def print_comparison(console: Console, entries: Sequence[Entry], title: str) -> None:
    headings, lines = table(entries)
    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        words = heading in ("strategy", "queues of each member")
        drawn.add_column(heading, justify="left" if words else "right", no_wrap=not words)
    reasons = []
    for line in lines:
        if len(line) == len(headings):
            drawn.add_row(*(Text(printable(cell)) for cell in line))
        else:
            reasons.append(": ".join(line))
    console.print(Text(title, "bold"), "", drawn, "", sep="\n")
    for reason in reasons:
        console.print(Text(f"- {printable(reason)}"))


def _table(grid: Grid, console: Console) -> Table:
    """A cell for each queue, under its broker."""
    drawn = _started(grid)
    several = len(grid.topics) > 1
    for group in grid.groups:
        name = f"{group.topic}\n{group.broker_name}" if several else group.broker_name
        lines = "\n".join(map(printable, name.split("\n")))
        drawn.add_column(Text(lines), no_wrap=True)
    empty = "." if console.options.ascii_only else "\u00b7"
    for row in grid.rows:
        cells = [_cells(grid, group, row, empty) for group in grid.groups]
        drawn.add_row(*_first_columns(grid, row), *cells)
    return drawn


def _compact(grid: Grid) -> Table:
    """Runs of ids, for many queues or a narrow terminal."""
    drawn = _started(grid)
    drawn.add_column("which")
    for row in grid.rows:
        bundles, left_out = grid.bundles(row)
        text = Text()
        for part in bundles:
            style = STYLES[part.mark] if grid.changes else _hue(part.hue)
            text.append(f" {part.mark}{printable(part.name)} {part.ids} ", style).append(" ")
        if left_out:
            text.append(f"and {counted(left_out, 'more queue')}")
        drawn.add_row(*_first_columns(grid, row), text)
    return drawn


def _started(grid: Grid) -> Table:
    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    drawn.add_column("member", overflow="fold")
    drawn.add_column("queues", justify="right", no_wrap=True)
    if grid.weighed:
        drawn.add_column("messages", justify="right", no_wrap=True)
    return drawn


def _first_columns(grid: Grid, row: Row) -> list[Text]:
    member = Text(printable(row.member))
    if row.note:
        member.append(f" {row.note}", "italic")
    columns = [member, Text(f"{row.queues:,}")]
    return [*columns, Text(f"{row.messages or 0:,}")] if grid.weighed else columns


def _cells(grid: Grid, group: Group, row: Row, empty: str) -> Text:
    width = max(map(len, map(str, group.queue_ids))) + grid.changes
    text = Text()
    for number in group.queue_ids:
        mark = row.marks.get(MessageQueue(group.topic, group.broker_name, number))
        if mark is None:
            text.append(f" {empty:>{width}} ", "dim")
        else:
            style = STYLES[mark] if grid.changes else _hue(group.hue)
            text.append(f" {mark + str(number):>{width}} ", style)
    return text


def _hue(number: int) -> str:
    return f"bold #ffffff on {HUES[number % len(HUES)]}"


def _legend() -> Text:
    text = Text()
    for mark, meaning in ((DROPPED, "dropped"), (OWNED, "kept"), (ADDED, "added")):
        text.append(f" {mark}3 ", STYLES[mark]).append(f" {meaning}  ")
    return text


def _width(console: Console, drawn: Table) -> int:
    """What it would take, were there no edge."""
    return Measurement.get(console, console.options.update(width=100_000), drawn).maximum
