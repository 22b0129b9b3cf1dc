"""Plans and rebalances as HTML: what a notebook shows, and whole pages that need nothing else.

Everything is also said in words: a queue's cell holds its id, `+` and `-` mark what came and went,
and the markup is well-formed XML, so a reader that drops the styles still shows a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from rocketmq_spark.core.grid import (
    ADDED,
    CELLS,
    DROPPED,
    OWNED,
    Grid,
    Row,
    counted,
    plan_grid,
    printable,
    rebalance_grid,
)
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.picture_style import CSS, HUES

if TYPE_CHECKING:
    from rocketmq_spark.core.compare import Entry
    from rocketmq_spark.core.plan import Plan
    from rocketmq_spark.core.rebalance import Rebalance

_MARK_CLASS = {OWNED: "kept", ADDED: "added", DROPPED: "dropped"}
_SIGN = {OWNED: "", ADDED: "+", DROPPED: "\u2212"}
_LEGEND = (
    '<p class="legend"><span class="queue dropped">\u22123</span> dropped '
    '<span class="queue kept">3</span> kept <span class="queue added">+3</span> added</p>'
)
_MOST_UNOWNED = 20


def plan_html(plan: Plan) -> str:
    """A fragment for a notebook."""
    return _style() + grid_html(plan_grid(plan))


def rebalance_html(change: Rebalance) -> str:
    """A fragment for a notebook."""
    return _style() + grid_html(rebalance_grid(change))


def page(title: str, *sections: str) -> str:
    """A whole page. It fetches nothing: its policy would not even allow it to."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="color-scheme" content="light dark"/>'
        f"<title>{_text(title)}</title>{_style()}</head>"
        f'<body class="rmq-page"><main>{"".join(sections)}</main></body></html>\n'
    )


def grid_html(grid: Grid, legend: bool = True) -> str:
    """Members as rows, queues as cells; many queues as runs of ids."""
    cells = grid.cells <= CELLS
    marks = _LEGEND if legend and grid.changes else ""
    unowned = f"<p>{_unowned(grid.unowned)}</p>" if grid.unowned else ""
    hidden = f"<p>{counted(grid.hidden, 'more member')} not shown.</p>" if grid.hidden else ""
    body = "".join(_row(grid, row, cells) for row in grid.rows)
    return (
        f'<section class="rmq"><h2>{_text(grid.title)}</h2><p>{_text(grid.summary)}</p>{marks}'
        f'<div class="scroll"><table>{_head(grid, cells)}<tbody>{body}</tbody></table></div>'
        f"{hidden}{unowned}</section>"
    )


def comparison_html(entries: Sequence[Entry], title: str, summary: str, rows: int) -> str:
    """The strategies in one table, and below it a picture of each."""
    from rocketmq_spark.core.compare import table

    headings, lines = table(entries)
    head = "".join(f'<th scope="col" class="{_align(name)}">{name}</th>' for name in headings)
    body = "".join(_line(headings, line) for line in lines)
    grids = (
        grid_html(
            plan_grid(entry.plan, rows=rows)
            if entry.change is None
            else rebalance_grid(entry.change, entry.plan.strategy, rows),
            legend=False,
        )
        for entry in entries
        if entry.plan is not None
    )
    marks = _LEGEND if any(entry.change is not None for entry in entries) else ""
    return (
        f'<section class="rmq"><h2>{_text(title)}</h2><p>{_text(summary)}</p>{marks}'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f'</div></section><div class="rmq-cards">{"".join(grids)}</div>'
    )


# --- parts ------------------------------------------------------------------------------------


def _head(grid: Grid, cells: bool) -> str:
    rows = 2 if cells and grid.groups else 1
    many = len(grid.topics) > 1
    fixed = f'<th scope="col" rowspan="{rows}" class="left">member</th>'
    fixed += f'<th scope="col" rowspan="{rows}" class="right">queues</th>'
    if grid.weighed:
        fixed += f'<th scope="col" rowspan="{rows}" class="right">messages</th>'
    if not cells:
        return f'<thead><tr>{fixed}<th scope="col" class="left">which</th></tr></thead>'
    groups, numbers = "", ""
    for group in grid.groups:
        hue = "" if grid.changes else f" hue{group.hue % len(HUES)}"
        name = f"{_text(group.topic)} / " if many else ""
        groups += (
            f'<th scope="colgroup" colspan="{len(group.queue_ids)}" class="group">'
            f'<span class="name{hue}">{name}{_text(group.broker_name)}</span></th>'
        )
        for place, number in enumerate(group.queue_ids):
            first = " first" if place == 0 else ""
            numbers += f'<th scope="col" class="id{first}">{number}</th>'
    return f"<thead><tr>{fixed}{groups}</tr><tr>{numbers}</tr></thead>"


def _row(grid: Grid, row: Row, cells: bool) -> str:
    note = f' <span class="note">{row.note}</span>' if row.note else ""
    kind = ' class="left-us"' if row.note == "left" else ""
    text = f'<tr{kind}><th scope="row" class="left"><bdi>{_text(row.member)}</bdi>{note}</th>'
    text += f'<td class="right">{row.queues:,}</td>'
    if grid.weighed:
        text += _load(grid, row)
    return text + (_cells(grid, row) if cells else _bundles(grid, row)) + "</tr>"


def _load(grid: Grid, row: Row) -> str:
    """The number with a bar under it, as long as this member's work beside the largest."""
    largest = max(other.messages or 0 for other in grid.rows) or 1
    share = round(100 * (row.messages or 0) / largest)
    bar = f'<span class="bar" style="width:{share}%"></span>'
    return f'<td class="right">{row.messages or 0:,}{bar}</td>'


def _cells(grid: Grid, row: Row) -> str:
    text = ""
    for group in grid.groups:
        for place, number in enumerate(group.queue_ids):
            first = ' class="first"' if place == 0 else ""
            mark = row.marks.get(MessageQueue(group.topic, group.broker_name, number))
            if mark is None:
                text += f"<td{first}></td>"
                continue
            kind = _MARK_CLASS[mark] if grid.changes else f"hue{group.hue % len(HUES)}"
            text += f'<td{first}><span class="queue {kind}">{_SIGN[mark]}{number}</span></td>'
    return text


def _bundles(grid: Grid, row: Row) -> str:
    bundles, left_out = grid.bundles(row)
    text = "".join(
        f'<span class="queue {_MARK_CLASS[part.mark] if grid.changes else _hue(part.hue)}">'
        f"{_SIGN[part.mark]}{_text(part.name)} {part.ids}</span> "
        for part in bundles
    )
    more = f"and {counted(left_out, 'more queue')}" if left_out else ""
    return f'<td class="left runs">{text}{more}</td>'


def _hue(number: int) -> str:
    return f"hue{number % len(HUES)}"


def _unowned(queues: Sequence[MessageQueue]) -> str:
    more = len(queues) - _MOST_UNOWNED
    names = ", ".join(_text(str(queue)) for queue in queues[:_MOST_UNOWNED])
    return f"Without a reader: {names}{f' and {more:,} more' if more > 0 else ''}."


def _line(headings: Sequence[str], line: Sequence[str]) -> str:
    name, *rest = line
    text = f'<th scope="row" class="left">{_text(name)}</th>'
    if len(rest) < len(headings) - 1:  # only a reason
        span = len(headings) - 1
        return f'<tr>{text}<td class="left why" colspan="{span}">{_text(rest[0])}</td></tr>'
    pairs: Iterable[tuple[str, str]] = zip(headings[1:], rest, strict=True)
    cells = (f'<td class="{_align(heading)}">{_text(cell)}</td>' for heading, cell in pairs)
    return f"<tr>{text}{''.join(cells)}</tr>"


def _align(heading: str) -> str:
    return "left" if heading in ("strategy", "queues of each member") else "right"


def _text(words: str) -> str:
    return escape(printable(words))


def _style() -> str:
    return f"<style>{CSS}</style>"
