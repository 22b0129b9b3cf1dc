"""`rocketmq-spark plan`, as people type it; what needs no cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rocketmq_spark.cli.app import run
from rocketmq_spark.cli.plan_view import HUES, STYLES
from rocketmq_spark.core.allocate import STRATEGIES, allocate
from rocketmq_spark.core.model import MessageQueue

TWO = "10.0.0.1@1,10.0.0.2@2"
THREE = f"{TWO},10.0.0.3@3"
EIGHT = ["--queues", "broker-a:4,broker-b:4"]
SHARED = [MessageQueue("T", f"broker-{b}", n) for b in "ab" for n in range(4)]


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command and returns what it printed."""
    monkeypatch.delenv("ROCKETMQ_SPARK_NAMESRV", raising=False)
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(*arguments: str, code: int = 0) -> str:
        assert run(["plan", *arguments]) == code
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        if code:
            assert out == ""
            return err
        return out

    return invoke


def table(out: str) -> list[str]:
    """The lines with something in them, one space between words."""
    return [" ".join(line.split()) for line in out.splitlines() if line.strip(" ─-")]


def queues(told: dict[str, Any]) -> dict[str, list[MessageQueue]]:
    return {
        member: [MessageQueue(q["topic"], q["brokerName"], q["queueId"]) for q in owned]
        for member, owned in told["result"].items()
    }


# --- a plan -----------------------------------------------------------------------------------


def test_members_are_rows_and_queues_are_cells(plan: Any) -> None:
    assert table(plan(*EIGHT, "--executors", THREE)) == [
        "AVG",
        "8 queues among 3 members, 2 to 3 each",
        "member queues broker-a broker-b",
        "10.0.0.1@1 3 0 1 2 · · · · ·",
        "10.0.0.2@2 3 · · · 3 0 1 · ·",
        "10.0.0.3@3 2 · · · · · · 2 3",
    ]


def test_json_is_what_allocate_says(plan: Any) -> None:
    for strategy in ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "STICKY"):
        out = plan(
            *EIGHT, "--topic", "T", "--executors", THREE, "--strategy", strategy.lower(), "--json"
        )
        assert queues(json.loads(out)) == allocate(strategy, SHARED, THREE.split(","))


def test_several_topics_in_one_list_or_each_by_itself(plan: Any) -> None:
    four = ["--queues", "b:2", "--executors", "m1,m2,m3,m4", "--json"]
    one_list = queues(json.loads(plan(*four, "--topic", "T,U")))
    assert [len(owned) for owned in one_list.values()] == [1, 1, 1, 1]
    each = queues(json.loads(plan(*four, "--topic", "T", "--topic", "U", "--scope", "topic")))
    assert [len(owned) for owned in each.values()] == [2, 2, 0, 0]


def test_a_topic_may_have_brokers_of_its_own(plan: Any) -> None:
    out = plan("--queues", "T/b-a:1,U/b-b:2", "--executors", "m", "--json")
    expected = [
        MessageQueue("T", "b-a", 0),
        MessageQueue("U", "b-b", 0),
        MessageQueue("U", "b-b", 1),
    ]
    assert queues(json.loads(out)) == {"m": expected}


def test_the_order_of_typing_does_not_matter(plan: Any) -> None:
    one = plan("--queues", "b-a:2,b-b:2", "--executors", "m1,m2", "--json")
    assert plan("--queues", "b-b:2,b-a:2", "--executors", "m2, m1", "--json") == one


def test_every_strategy_has_its_options(plan: Any, tmp_path: Path) -> None:
    rooms = tmp_path / "rooms.json"
    rooms.write_text('{"10.0.0.1@": "idc1", "10.0.0.": "idc2"}')
    frozen = tmp_path / "frozen.json"
    frozen.write_text(plan(*EIGHT, "--topic", "T", "--executors", THREE, "--json"))
    given: dict[str, list[str]] = {
        "CONSISTENT_HASH": ["--virtual-nodes", "3"],
        "CONFIG": ["--config", str(frozen)],
        "MACHINE_ROOM": ["--rooms", "idc1"],
        "MACHINE_ROOM_NEARBY": ["--member-rooms", str(rooms), "--inner", "AVG_BY_CIRCLE"],
        "FIXED": ["--hosts", "10.0.0.2"],
        "BY_LAG": ["--lag", "idc1@a:0=70,idc1@a:1=30,idc2@b:0=20"],
    }
    in_rooms = ["--queues", "idc1@a:2,idc2@b:2", "--topic", "T", "--executors", THREE, "--json"]
    told = {
        name: json.loads(plan(*in_rooms, "--strategy", name, *given.get(name, [])))
        for name in STRATEGIES
    }
    counts = {name: [len(q) for q in queues(each).values()] for name, each in told.items()}
    assert counts == {
        "AVG": [2, 1, 1],
        "AVG_BY_CIRCLE": [2, 1, 1],
        "CONSISTENT_HASH": counts["CONSISTENT_HASH"],
        "CONFIG": [0, 0, 0],  # its queues are of other brokers
        "MACHINE_ROOM": [1, 1, 0],
        "MACHINE_ROOM_NEARBY": [2, 1, 1],
        "FIXED": [0, 4, 0],
        "STICKY": [2, 1, 1],
        "BY_LAG": [2, 2, 2],
    }
    in_rooms_queues = [MessageQueue("T", b, i) for b in ("idc1@a", "idc2@b") for i in (0, 1)]
    three = allocate("CONSISTENT_HASH", in_rooms_queues, THREE.split(","), virtual_nodes=3)
    assert three != allocate("CONSISTENT_HASH", in_rooms_queues, THREE.split(","))
    assert queues(told["CONSISTENT_HASH"]) == three
    assert len(told["MACHINE_ROOM"]["unowned"]) == 2
    same = plan(
        *EIGHT,
        *("--topic", "T", "--executors", THREE, "--strategy", "CONFIG"),
        *("--config", str(frozen), "--json"),
    )
    assert same == frozen.read_text()


def test_rooms_may_be_typed_and_the_longest_beginning_counts(plan: Any) -> None:
    out = plan(
        *("--queues", "east-1:2,west-1:2", "--executors", "10.1.0.1@1,10.1.9.1@2,10.2.0.1@3"),
        *("--strategy", "MACHINE_ROOM_NEARBY", "--broker-rooms", "east=E,west=W"),
        *("--member-rooms", "10.1.=E,10.2.=W,10.1.9.=W", "--json"),
    )
    owned = {m: {q.broker_name for q in qs} for m, qs in queues(json.loads(out)).items()}
    assert owned == {"10.1.0.1@1": {"east-1"}, "10.1.9.1@2": {"west-1"}, "10.2.0.1@3": {"west-1"}}


def test_by_lag_shows_what_each_has_to_read(plan: Any, tmp_path: Path) -> None:
    lag = tmp_path / "lag.json"
    lag.write_text('{"T": {"b": {"0": 70, "1": 30, "2": 20}}}')
    arguments = ("--queues", "b:3", "--topic", "T", "--executors", "m1,m2", "--strategy", "BY_LAG")
    out = plan(*arguments, "--lag", str(lag))
    assert "120 messages to read" in out
    assert [row.split()[2] for row in table(out) if row[0] == "m" and row[1] in "12"] == [
        "60",
        "60",
    ]
    assert plan(*arguments, "--lag", "b:0=70,T/b:1=30,b:2=20") == out


# --- a rebalance ------------------------------------------------------------------------------


def test_was_shows_what_moves(plan: Any) -> None:
    rows = table(plan(*EIGHT, "--executors", THREE, "--was", TWO))
    assert rows[1] == (
        "3 queues moved: 3 dropped, 5 kept, 3 added. Why: 1 member joined (10.0.0.3@3)"
    )
    assert rows[2] == "-3 dropped 3 kept +3 added"
    assert rows[-3:] == [
        "10.0.0.1@1 3 0 1 2 -3 · · · ·",
        "10.0.0.2@2 3 · · · +3 0 1 -2 -3",
        "10.0.0.3@3 joined 2 · · · · · · +2 +3",
    ]


def test_compare_takes_a_plan_from_a_file(plan: Any, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(plan(*EIGHT, "--executors", TWO, "--json"))
    compared = plan(*EIGHT, "--executors", THREE, "--compare", str(before))
    assert compared == plan(*EIGHT, "--executors", THREE, "--was", TWO)
    moved = json.loads(plan(*EIGHT, "--executors", THREE, "--compare", str(before), "--json"))
    assert moved["rebalance"]["moved"] == 3
    assert [q["queueId"] for q in moved["rebalance"]["members"]["10.0.0.3@3"]["added"]] == [2, 3]


def test_sticky_keeps_what_was(plan: Any, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(plan(*EIGHT, "--executors", TWO, "--json"))
    sticky = (*EIGHT, "--executors", THREE, "--strategy", "STICKY")
    assert "2 queues moved" in plan(*sticky, "--compare", str(before))
    assert "2 queues moved" in plan(*sticky, "--was", TWO)


def test_queues_come_and_go_too(plan: Any) -> None:
    out = plan("--queues", "b-a:4", "--was-queues", "b-a:4,b-b:2", "--executors", "m1,m2")
    assert "2 queues removed (topic/b-b/0, topic/b-b/1)" in out


# --- all strategies ---------------------------------------------------------------------------


def test_all_sets_strategies_side_by_side(plan: Any) -> None:
    out = plan(*EIGHT, "--topic", "T", "--executors", THREE, "--was", TWO, "--all")
    rows = dict(row.split(" ", 1) for row in table(out))
    assert rows["AVG"] == "2 3 0 0 3 3 3 2"  # fewest, most, idle, no reader, moved, each
    assert rows["STICKY"] == "2 3 0 0 2 3 3 2"
    assert "CONSISTENT_HASH" in rows
    for reason in (
        "FIXED: needs --hosts 10.0.0.1,10.0.0.2",
        "CONFIG: needs --config plan.json",
        "BY_LAG: needs --lag broker-a:0=120,broker-b:3=7 without a cluster",
    ):
        assert reason in out


def test_all_as_json(plan: Any) -> None:
    told = json.loads(plan(*EIGHT, "--executors", THREE, "--was", TWO, "--all", "--json"))
    assert list(told["strategies"]) == list(STRATEGIES)
    avg = told["strategies"]["AVG"]
    assert (avg["fewest"], avg["most"], avg["rebalance"]["moved"]) == (2, 3, 3)
    assert told["strategies"]["FIXED"] == {"reason": "needs --hosts 10.0.0.1,10.0.0.2"}
    assert "--topic" in told["strategies"]["CONSISTENT_HASH"]["reason"]


# --- the page ---------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--was", TWO], ["--all", "--topic", "T", "--was", TWO]])
def test_html_writes_a_page_with_every_member(plan: Any, tmp_path: Path, more: list[str]) -> None:
    file = tmp_path / "plan.html"
    assert plan(*EIGHT, "--executors", THREE, *more, "--html", str(file)) == ""
    text = "".join(ElementTree.fromstring(file.read_text(encoding="utf-8")).itertext())
    for name in (*THREE.split(","), "broker-a", "broker-b", "AVG"):
        assert name in text


# --- large and small terminals ----------------------------------------------------------------


def test_many_queues_are_runs_of_ids(plan: Any) -> None:
    out = plan("--queues", "b-a:300,b-b:300", "--executors", "m1,m2,m3")
    assert table(out)[-3:] == [
        "m1 200 b-a 0-199",
        "m2 200 b-a 200-299 b-b 0-99",
        "m3 200 b-b 100-299",
    ]


def test_a_narrow_terminal_gets_runs_of_ids(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = plan(*EIGHT, "--executors", THREE)
    assert max(map(len, out.splitlines())) <= 40
    assert "broker-a 0-2" in out


def test_many_members_are_cut_and_counted(plan: Any) -> None:
    members = ",".join(f"m{number}" for number in range(10_000))
    out = plan("--queues", "b:20000", "--executors", members)
    assert len(out.splitlines()) < 120
    assert "9,900 more members not shown" in out
    assert "9,997 more" in plan("--queues", "b:20", "--executors", members, "--rows", "3")


def test_colours_are_given_to_terminals_and_withheld_from_pipes(plan: Any) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    command = [sys.executable, "-m", "rocketmq_spark", "plan", *EIGHT, "--executors", THREE]
    piped, forced = (
        subprocess.run(
            command,
            capture_output=True,
            timeout=120,
            check=True,
            env={**environment, "COLUMNS": "120", **more},
        ).stdout
        for more in ({}, {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"})
    )
    assert b"\x1b[" not in piped
    assert b"48;2;37;99;235" in forced  # broker-a's blue


def test_an_ascii_terminal_gets_ascii() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rocketmq_spark", "plan", *EIGHT, "--executors", "m1,中"],
        capture_output=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert b"m1" in done.stdout
    assert done.stdout.isascii()


def test_dropped_is_red_kept_green_and_added_yellow() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rocketmq_spark", "plan"),
            *(*EIGHT, "--executors", THREE, "--was", TWO),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "120", "FORCE_COLOR": "1", "COLORTERM": "truecolor"},
    )
    painted = set(re.findall(r"48;2;(\d+;\d+;\d+)m ?([-+\u2212]?)\d", done.stdout))
    assert painted == {
        ("185;28;28", "-"),  # red
        ("21;128;61", ""),  # green
        ("250;204;21", "+"),  # yellow
    }


def test_terminal_colours_have_contrast() -> None:
    from tests.core.test_picture import contrast

    for hue in HUES:
        assert contrast("#ffffff", hue) >= 4.5
    for style in STYLES.values():
        _, text, _, background = style.split()
        assert contrast(text, background) >= 4.5


def test_names_cannot_steer_the_terminal(plan: Any) -> None:
    out = plan("--queues", "b\x1b[31m:1", "--executors", "[red]m[/red]\x1b[2J\u202e")
    assert "\x1b" not in out and "\u202e" not in out
    assert "[red]m[/red]" in out


# --- mistakes ---------------------------------------------------------------------------------

GOOD = [*EIGHT, "--executors", THREE]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*GOOD, "--strategy", "XYZ"], "choose one of AVG, AVG_BY_CIRCLE"),
        ([*GOOD, "--all", "--strategy", "XYZ"], "choose one of AVG, AVG_BY_CIRCLE"),
        ([*GOOD, "--strategy", "AVG_BY_CIRCEL"], "did you mean AVG_BY_CIRCLE?"),
        ([*EIGHT, "--executors", "a,b,a"], "member 'a' is listed twice"),
        ([*EIGHT, "--executors", "a,,b"], "write --executors one,two,three"),
        ([*EIGHT], "Give --executors 10.0.0.1@1,10.0.0.2@2"),
        ([*GOOD, "--was", "a,a"], "member 'a' is listed twice"),
        (["--queues", "broker-a", "--executors", "a"], "such as broker-a:4"),
        (["--queues", "broker-a:x", "--executors", "a"], "such as broker-a:4"),
        (["--queues", "broker-a:-1", "--executors", "a"], "such as broker-a:4"),
        (["--queues", ":4", "--executors", "a"], "such as broker-a:4"),
        (["--queues", "T/:4", "--executors", "a"], "such as broker-a:4"),
        (["--queues", "b:4,b:2", "--executors", "a"], "list every broker once"),
        (["--queues", "b:99999999999", "--executors", "a"], "more than 1,000,000 queues"),
        ([*GOOD, "--topic", "T,T"], "list every topic once"),
        ([*GOOD, "--scope", "none"], "--scope"),
        ([*GOOD, "--strategy", "FIXED"], "FIXED needs --hosts 10.0.0.1,10.0.0.2"),
        ([*GOOD, "--strategy", "MACHINE_ROOM"], "MACHINE_ROOM needs --rooms"),
        ([*GOOD, "--strategy", "MACHINE_ROOM_NEARBY"], "needs --member-rooms"),
        ([*GOOD, "--strategy", "CONFIG"], "CONFIG needs --config"),
        ([*GOOD, "--strategy", "CONSISTENT_HASH"], "it needs --topic"),
        ([*GOOD, "--strategy", "BY_LAG"], "BY_LAG needs --lag"),
        ([*GOOD, "--hosts", "10.0.0.1"], "set --strategy FIXED"),
        ([*GOOD, "--strategy", "CONFIG", "--config", "none.json"], "cannot read none.json"),
        ([*GOOD, "--compare", "none.json"], "cannot read none.json"),
        ([*GOOD, "--compare", "x.json", "--was", TWO], "leave out --was"),
        ([*GOOD, "--lag", "broker-a:9=1"], "there is no such queue"),
        ([*GOOD, "--lag", "broker-a=1"], "such as broker-a:0=120"),
        ([*GOOD, "--lag", "none.json"], "cannot read none.json"),
        ([*GOOD, "--group", "g"], "leave out --queues"),
        ([*GOOD, "--html", "no/such/folder/plan.html"], "cannot write"),
        (
            [*GOOD, "--strategy", "MACHINE_ROOM_NEARBY", "--member-rooms", "10.=r"],
            "--broker-rooms broker-a=some-room",
        ),
        (
            [*GOOD, "--strategy", "MACHINE_ROOM_NEARBY", "--member-rooms", "10.r"],
            "such as 10.0.1.=idc1",
        ),
        (["--topic", "T", "--executors", "a"], "--name-server host:port"),
        (["-n", "127.0.0.1:1", "--executors", "a"], "Give --topic T"),
        (["-n", "127.0.0.1:1", "--topic", "T"], "or --group for its live members"),
        (["-n", "127.0.0.1:1", "--topic", "T", "--executors", "a"], "Or plan without a cluster"),
        (["-n", "nonsense", "--topic", "T", "--executors", "a"], "host:port"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_fix(
    plan: Any, arguments: list[str], said: str
) -> None:
    words = plan(*arguments, code=2)
    assert said in words
    if "Usage:" not in words:  # click's own
        assert len(words.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"result": {"m": [{"brokerName": "b", "queueId": -1, "topic": "T"}]}}',
        '{"result": 7}',
        '{"m": 7}',
        '{"m": [7]}',
        '{"m": [{"topic": "T", "brokerName": "b"}]}',
        '{"m": [{"topic": "T", "brokerName": "b", "queueId": "0"}]}',
        '{"m": [{"topic": "T", "brokerName": "b", "queueId": true}]}',
        "[" * 200_000,
    ],
)
@pytest.mark.parametrize("option", ["--compare", "--config", "--lag", "--member-rooms"])
def test_a_file_of_another_shape_is_refused(
    plan: Any, tmp_path: Path, option: str, text: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    strategy = {"--config": "CONFIG", "--member-rooms": "MACHINE_ROOM_NEARBY"}.get(option, "AVG")
    words = plan(*GOOD, "--strategy", strategy, option, str(file), code=2)
    assert str(file) in words
    assert len(words.splitlines()) == 1


def test_a_queue_with_two_owners_in_a_config_is_refused(plan: Any, tmp_path: Path) -> None:
    file = tmp_path / "twice.json"
    queue = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
    file.write_text(json.dumps({"a": [queue], "b": [queue]}))
    config = ("--topic", "T", "--strategy", "CONFIG", "--config", str(file))
    words = plan(*EIGHT, "--executors", "a,b", *config, code=2)
    assert "to both a and b" in words
