"""What the demo shows: a table that changes in place, or a line now and then without a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rocketmq_spark.cli.demo.orders import TAGS, Total

_REDRAWN_PER_SECOND = 4
_SECONDS_BETWEEN_LINES = 5.0
_BAR = 30


@dataclass(frozen=True)
class Moment:
    """How far everybody is."""

    batch: int = -1
    sent: int = 0
    totals: Mapping[str, Total] = field(default_factory=dict)
    rows_per_second: float = 0.0

    @property
    def counted(self) -> int:
        return sum(total.orders for total in self.totals.values())

    @property
    def lag(self) -> int:
        # A count may be newer than what the sender has noted.
        return max(0, self.sent - self.counted)

    def __str__(self) -> str:
        if self.batch < 0:
            return f"{self.sent:,} orders sent; Spark plans its first micro-batch"
        return (
            f"batch {self.batch}: {self.counted:,} of {self.sent:,} orders counted, "
            f"lag {self.lag:,}, {self.rows_per_second:,.0f} rows/s"
        )


def amount(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d}"


class Screen:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._moment = Moment()
        self._doing = Spinner("dots", "")
        self._live: Live | None = None
        self._next_line = 0.0

    @contextmanager
    def live(self) -> Iterator[None]:
        """Inside, `update` shows; what is printed meanwhile stays above the table."""
        if not self.console.is_terminal:
            yield
            return
        with Live(
            self._draw(),
            console=self.console,
            refresh_per_second=_REDRAWN_PER_SECOND,
            transient=True,
        ) as self._live:
            yield

    def doing(self, words: str) -> None:
        """What the demo is at."""
        if self.console.is_terminal:
            self._doing.update(text=Text(words, "bold"))
        else:
            self.console.print(Text(words))

    def update(self, moment: Moment) -> None:
        self._moment = moment
        if self._live is not None:
            self._live.update(self._draw())
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
            self.console.print(Text(f"  {moment}"))

    def _draw(self) -> RenderableType:
        return Group(self._doing, "", self._table(), Text(f" {self._moment}", "cyan"))

    def _table(self) -> Table:
        most = max((total.orders for total in self._moment.totals.values()), default=0) or 1
        table = Table(box=SIMPLE_HEAD, show_edge=False)
        table.add_column("tag", min_width=8)
        table.add_column("orders", justify="right", min_width=9)
        table.add_column("amount", justify="right", min_width=14)
        table.add_column("", min_width=_BAR)
        for name in TAGS:
            total = self._moment.totals.get(name, Total())
            bar = Text("\u2588" * round(_BAR * total.orders / most), "cyan")
            table.add_row(name, f"{total.orders:,}", amount(total.cents), bar)
        return table


def verdict_table(sent: Mapping[str, Total], told: Mapping[str, Total]) -> Table:
    """Both sides, tag by tag, with a sum."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, show_footer=True)
    table.add_column("tag", footer="all")
    for heading, side in (("sent", sent), ("counted", told)):
        orders = sum(total.orders for total in side.values())
        cents = sum(total.cents for total in side.values())
        table.add_column(heading, f"{orders:,}", justify="right")
        table.add_column("amount", amount(cents), justify="right")
    table.add_column("")
    for name in TAGS:
        ours, theirs = sent.get(name, Total()), told.get(name, Total())
        same = Text("equal", "green") if ours == theirs else Text("DIFFERENT", "bold red")
        row = [f"{ours.orders:,}", amount(ours.cents), f"{theirs.orders:,}", amount(theirs.cents)]
        table.add_row(name, *row, same)
    return table
