"""Pictures are well-formed, need nothing from outside, show everything, and let nothing through."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rocketmq_spark.core.compare import Entry
from rocketmq_spark.core.grid import plan_grid, printable, rebalance_grid, runs
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.core.picture import comparison_html, grid_html, page
from rocketmq_spark.core.picture_style import HUES, MARKS, SURFACES
from rocketmq_spark.core.plan import BROADCASTING, Plan, PlanOptions, plan
from rocketmq_spark.core.rebalance import rebalance

MEMBERS = ["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"]


def queues(brokers: int = 2, each: int = 4, topic: str = "orders") -> list[MessageQueue]:
    return [
        MessageQueue(topic, f"broker-{letter}", number)
        for letter in "abcdefgh"[:brokers]
        for number in range(each)
    ]


def planned(
    shared: Sequence[MessageQueue], members: Sequence[str], size: int = 0, **options: object
) -> Plan:
    starts, ends = dict.fromkeys(shared, 0), dict.fromkeys(shared, size)
    return plan(shared, members, starts, ends, PlanOptions(**options))  # type: ignore[arg-type]


def parsed(html: str) -> ElementTree.Element:
    """The fragment as XML: anything not closed or not escaped fails here."""
    return ElementTree.fromstring(f"<div>{html.removeprefix('<!DOCTYPE html>')}</div>")


def rows(html: str) -> dict[str, list[str]]:
    """Each member's filled cells, under `broker/id` as the head says; marks included."""
    root = parsed(html)
    head = root.findall(".//thead/tr")
    names = [
        "".join(cell.itertext())
        for cell in head[0].findall("th")
        if cell.get("scope") == "colgroup"
        for _ in range(int(cell.get("colspan", "1")))
    ]
    ids = ["".join(cell.itertext()) for cell in head[1]]
    result = {}
    for row in root.findall(".//tbody/tr"):
        cells = ["".join(cell.itertext()) for cell in row][-len(ids) :]
        for cell, number in zip(cells, ids, strict=True):
            assert cell.strip("+\u2212") in ("", number)
        result["".join(row[0].itertext())] = [
            f"{name}/{cell}" for name, cell in zip(names, cells, strict=True) if cell
        ]
    return result


# --- a plan -----------------------------------------------------------------------------------


def test_a_plan_shows_every_member_and_every_queue() -> None:
    assert rows(planned(queues(), MEMBERS)._repr_html_()) == {
        "10.0.0.1@1": ["broker-a/0", "broker-a/1", "broker-a/2"],
        "10.0.0.2@2": ["broker-a/3", "broker-b/0", "broker-b/1"],
        "10.0.0.3@3": ["broker-b/2", "broker-b/3"],
    }


def test_several_topics_are_told_apart() -> None:
    shared = queues(1, 2, "orders") + queues(1, 2, "payments")
    assert rows(planned(shared, ["a", "b"])._repr_html_()) == {
        "a": ["orders / broker-a/0", "orders / broker-a/1"],
        "b": ["payments / broker-a/0", "payments / broker-a/1"],
    }


def test_what_there_is_to_read_is_a_number_and_a_bar() -> None:
    shared = queues(1, 3)
    ends = dict(zip(shared, (100, 0, 50), strict=True))
    made = plan(shared, ["a", "b"], dict.fromkeys(shared, 0), ends)
    html = made._repr_html_()
    loads = [
        cell for cell in parsed(html).iter("td") if cell.find("span[@class='bar']") is not None
    ]
    assert [cell.text for cell in loads] == ["100", "50"]
    assert re.findall(r'style="width:(\d+)%"', html) == ["100", "50"]
    assert "150 messages to read" in html


def test_a_summary_counts_the_idle_and_what_nobody_reads() -> None:
    idle = plan_grid(planned(queues(1, 4), ["a", "b", "c", "d", "e"]))
    assert idle.summary == "4 queues among 5 members, 0 to 1 each, 1 idle"
    config = {"a": queues(1, 1)}
    left_out = planned(queues(1, 2), ["a"], strategy="CONFIG", params={"config": config})
    assert plan_grid(left_out).summary.endswith("1 queue without a reader")
    assert "Without a reader: orders/broker-a/1." in left_out._repr_html_()


def test_nobody_and_nothing_are_pictures_too() -> None:
    for made in (planned([], []), planned([], ["a"]), planned(queues(), [])):
        parsed(made._repr_html_())


# --- a rebalance ------------------------------------------------------------------------------


def test_a_rebalance_marks_what_is_dropped_kept_and_added_in_letters() -> None:
    before = planned(queues(), MEMBERS[:2])
    html = rebalance(before, planned(queues(), MEMBERS))._repr_html_()
    assert rows(html) == {
        "10.0.0.1@1": ["broker-a/0", "broker-a/1", "broker-a/2", "broker-a/\u22123"],
        "10.0.0.2@2": [
            "broker-a/+3",
            "broker-b/0",
            "broker-b/1",
            "broker-b/\u22122",
            "broker-b/\u22123",
        ],
        "10.0.0.3@3 joined": ["broker-b/+2", "broker-b/+3"],
    }
    assert "3 queues moved: 3 dropped, 5 kept, 3 added" in html
    for kind in ("dropped", "kept", "added"):
        assert f'class="queue {kind}"' in html


def test_a_member_that_left_is_shown() -> None:
    html = rebalance({"a": queues(1, 1), "b": []}, {"a": queues(1, 1)})._repr_html_()
    assert list(rows(html)) == ["a", "b left"]


def test_of_many_members_those_with_changes_are_shown() -> None:
    many = queues(1, 500)
    before = {f"m{number:03}": [queue] for number, queue in enumerate(many)}
    after = {**before, "m400": [], "m401": [many[400], many[401]]}
    grid = rebalance_grid(rebalance(before, after), rows=10)
    assert {"m400", "m401"} <= {row.member for row in grid.rows}
    assert grid.hidden == 490


# --- strategies side by side ------------------------------------------------------------------


def test_a_comparison_lists_all_and_draws_those_that_have_a_plan() -> None:
    made = planned(queues(), MEMBERS)
    entries = [
        Entry("AVG", made, rebalance(planned(queues(), MEMBERS[:2]), made)),
        Entry("FIXED", reason="needs --hosts <b>"),
    ]
    root = parsed(comparison_html(entries, "8 queues", "", 10))
    lines = [["".join(cell.itertext()) for cell in row] for row in root.find(".//tbody") or []]
    assert lines == [["AVG", "2", "3", "0", "0", "3", "3 3 2"], ["FIXED", "needs --hosts <b>"]]
    assert [title.text for title in root.iter("h2")] == ["8 queues", "AVG"]


# --- large plans ------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_a_large_plan_is_a_small_page_that_says_so(strategy: str) -> None:
    shared = queues(8, 2500)
    members = [f"10.0.{number // 250}.{number % 250}@{number}" for number in range(10_000)]
    few = planned(shared, members[:3], strategy=strategy)
    many = planned(shared, members, strategy=strategy)
    for html in (many._repr_html_(), rebalance(few, many)._repr_html_()):
        assert len(html) < 200_000
        assert "9,900 more members not shown" in html
        assert len(parsed(html).findall(".//tbody/tr")) == 100
    # Three members with thousands of queues each: the rows are cut, and say so.
    html = few._repr_html_()
    assert len(html) < 20_000
    if strategy != "AVG":
        assert "more queues" in html


def test_all_queues_of_a_row_are_counted_shown_or_not() -> None:
    made = planned(queues(4, 300), MEMBERS, strategy="AVG_BY_CIRCLE")
    grid = plan_grid(made)
    for row in grid.rows:
        bundles, left_out = grid.bundles(row, most=7)
        shown = " ".join(part.ids for part in bundles).split()
        assert len(shown) + left_out == 400
        assert len(shown) == 7


def test_broadcasting_to_many_is_cheap() -> None:
    made = planned(
        queues(8, 1000), [f"m{number}" for number in range(500)], message_model=BROADCASTING
    )
    html = made._repr_html_()
    assert html.count("broker-h 0-999") == 100


def test_neighbours_are_one_run() -> None:
    assert list(runs([0, 1, 2, 3, 7, 9, 10])) == ["0-3", "7", "9-10"]
    assert list(runs([])) == []


# --- names are only names ---------------------------------------------------------------------

NASTY = "<script>alert('x')</script>\"&amp;\u202e\x1b[31m\ud800\x00"


def test_names_are_escaped_everywhere() -> None:
    queue = MessageQueue(f"t{NASTY}", f"b{NASTY}", 0)
    other = MessageQueue("u", f"c{NASTY}", 1)
    made = planned([queue, other], [f"m{NASTY}", "n"])
    change = rebalance({f"gone{NASTY}": [queue]}, made)
    unread = planned([queue], [NASTY], strategy="CONFIG", params={"config": {}})
    wide = planned([MessageQueue("t", f"b{NASTY}", n) for n in range(99)], ["m"])
    sections = [
        *(grid_html(plan_grid(each)) for each in (made, unread, wide)),
        grid_html(rebalance_grid(change, NASTY)),
        comparison_html([Entry("A", made, change), Entry("B", reason=NASTY)], NASTY, NASTY, 9),
    ]
    html = page(NASTY, *sections)
    root = parsed(html)
    assert not list(root.iter("script"))
    assert "\x1b" not in html and "\u202e" not in html and "\x00" not in html
    html.encode()  # half a surrogate pair would not go into a file
    assert "<script>alert('x')</script>" in "".join(root.itertext())


def test_printable_keeps_what_people_write() -> None:
    assert printable("broker-中文 é 😀") == "broker-中文 é 😀"
    assert printable("a\tb\n") == "a\ufffdb\ufffd"


# --- a page of its own ------------------------------------------------------------------------


def whole_page() -> str:
    before = planned(queues(), MEMBERS[:2])
    return page("A plan", grid_html(rebalance_grid(rebalance(before, planned(queues(), MEMBERS)))))


def test_a_page_is_whole_and_fetches_nothing() -> None:
    html = whole_page()
    root = parsed(html)
    assert root.findtext(".//title") == "A plan"
    assert root[0].get("lang") == "en"
    for tag in ("script", "link", "img", "iframe", "object", "base", "form"):
        assert not list(root.iter(tag)), tag
    for element in root.iter():
        assert not set(element.keys()) & {"src", "href", "action", "data", "srcset", "background"}
    assert "url(" not in html and "@import" not in html and "http:" not in html
    assert "https:" not in html and "//" not in html.partition("<body")[2]
    assert "default-src 'none'" in html


def test_headings_say_what_they_head() -> None:
    for cell in parsed(whole_page()).iter("th"):
        assert cell.get("scope") in ("col", "row", "colgroup")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG 2's ratio; 4.5 is its demand for text, 7 its highest."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("coat", [0, 1], ids=["light", "dark"])
def test_every_colour_is_readable_in_both_coats(coat: int) -> None:
    for pairs in chain(HUES, MARKS.values()):
        assert contrast(*pairs[coat]) >= 7, pairs[coat]
    for words in ("text", "quiet"):
        assert contrast(SURFACES[words][coat], SURFACES["card"][coat]) >= 5


def test_a_notebook_that_says_its_theme_is_believed() -> None:
    css = planned(queues(), MEMBERS)._repr_html_()
    dark_card = f"--rmq-card:{SURFACES['card'][1]}"
    assert re.search(r"\[data-jp-theme-light=false\] \.rmq[^}]*" + dark_card, css)
    assert "prefers-color-scheme:dark" in css


# --- a real browser ---------------------------------------------------------------------------

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def browse(folder: Path, html: str, *more: str) -> str:
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", *more, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return done.stdout


needs_browser = pytest.mark.skipif(not BROWSER, reason="no Chromium here; apt install chromium")


@needs_browser
def test_chromium_reads_the_page_as_we_wrote_it(tmp_path: Path) -> None:
    seen = browse(tmp_path, whole_page(), "--dump-dom")
    assert seen.count("<tr") == whole_page().count("<tr")
    assert '<span class="queue dropped">\u22123</span>' in seen


@needs_browser
@pytest.mark.parametrize("coat", [0, 1], ids=["light", "dark"])
def test_chromium_paints_the_coat_the_system_asks_for(tmp_path: Path, coat: int) -> None:
    shot = tmp_path / "shot.png"
    scheme = f"--blink-settings=preferredColorScheme={1 - coat}"
    browse(tmp_path, whole_page(), scheme, "--window-size=900,400", f"--screenshot={shot}")
    colours = pixels(shot.read_bytes())
    wanted = [SURFACES["page"][coat], SURFACES["card"][coat]]
    wanted += [pairs[coat][0] for pairs in MARKS.values()]
    for colour in wanted:
        assert bytes.fromhex(colour[1:]) in colours, colour


def pixels(png: bytes) -> set[bytes]:
    """The colours of a PNG as Chromium writes it: 8 bits, RGB or RGBA, not interlaced."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        chunk = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", chunk[:10])
            assert depth == 8 and colour in (2, 6)
        data += chunk if kind == b"IDAT" else b""
        at += size + 12
    step = 3 if colour == 2 else 4
    raw, line = zlib.decompress(data), bytearray(width * step)
    found: set[bytes] = set()
    for y in range(height):
        start = y * (width * step + 1)
        line = unfiltered(raw[start], raw[start + 1 : start + 1 + width * step], line, step)
        found.update(bytes(line[x : x + 3]) for x in range(0, len(line), step))
    return found


def unfiltered(kind: int, line: bytes, above: bytearray, step: int) -> bytearray:
    result = bytearray(line)
    for x in range(len(line)):
        left = result[x - step] if x >= step else 0
        corner = above[x - step] if x >= step else 0
        guess = (0, left, above[x], (left + above[x]) // 2, paeth(left, above[x], corner))[kind]
        result[x] = (result[x] + guess) & 255
    return result


def paeth(left: int, up: int, corner: int) -> int:
    near = left + up - corner
    return min((left, up, corner), key=lambda value: abs(near - value))
