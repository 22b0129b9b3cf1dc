"""Messages to requests: which travel together, where to, and under which ids."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_spark.client.balance import Balancer
from rocketmq_spark.client.outgoing import (
    MAX_MESSAGE,
    Message,
    Request,
    SendResult,
    make_requests,
)
from rocketmq_spark.client.unique import unique_id
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import BusyError, UsageError
from rocketmq_spark.wire.compression import decompress
from rocketmq_spark.wire.message import decode_batch_items, decode_properties

QUEUES = [MessageQueue("T", f"b-{name}", number) for name in "ab" for number in range(4)]


def requests(
    messages: Sequence[Message],
    first: int = 0,
    queues: Sequence[MessageQueue] = QUEUES,
    compress_above: int = 4096,
    compression: str = "zlib",
    max_message: int = MAX_MESSAGE,
) -> list[Request]:
    return make_requests(
        messages,
        queues,
        Balancer(start=first),
        compress_above=compress_above,
        compression=compression,
        max_message=max_message,
    )


def contents(request: Request) -> list[tuple[bytes, dict[str, str], int]]:
    """Body, properties and flag of each message in a request."""
    if request.batch:
        return [(bytes(i.body), i.properties, i.flag) for i in decode_batch_items(request.body)]
    body = decompress(request.sys_flag, request.body)
    return [(body, decode_properties(request.properties.encode()), request.flag)]


def by_row(made: Sequence[Request]) -> dict[int, tuple[MessageQueue, bytes, dict[str, str]]]:
    found = {}
    for request in made:
        items = contents(request)
        assert len(items) == len(request.rows) == len(request.msg_ids)
        for row, msg_id, (body, properties, _) in zip(
            request.rows, request.msg_ids, items, strict=True
        ):
            assert row not in found
            assert properties["UNIQ_KEY"] == msg_id
            found[row] = (request.queue, body, properties)
    return found


# --- where to ---------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 5, 65535])
def test_messages_go_round_from_anywhere(first: int) -> None:
    placed = by_row(requests([Message(b"x")] * 20, first))
    assert [placed[row][0] for row in range(20)] == [QUEUES[(first + row) % 8] for row in range(20)]


def test_messages_for_one_queue_travel_together() -> None:
    made = requests([Message(b"x")] * 20)
    assert len(made) == 8
    assert all(request.batch for request in made)
    assert made[0].rows == [0, 8, 16]


@pytest.mark.parametrize(
    ("key", "queue"),
    [
        ("order-1", 6),  # hash -1207111310
        ("TagA", 7),  # 2598919
        ("中文", 2),  # 646394
        ("", 0),
        ("polygenelubricants", 0),  # -2147483648, which has no positive
    ],
)
def test_a_key_goes_where_java_sends_it(key: str, queue: int) -> None:
    [request] = requests([Message(b"x", sharding_key=key)], first=3)
    assert request.queue == QUEUES[queue]
    assert request.fixed
    assert contents(request)[0][1].get("__SHARDINGKEY", "") == key


def test_keys_do_not_take_turns() -> None:
    messages = [Message(b"k", sharding_key="order-1"), Message(b"r"), Message(b"r")]
    placed = by_row(requests(messages))
    assert [placed[row][0] for row in range(3)] == [QUEUES[6], QUEUES[0], QUEUES[1]]


def test_a_queue_of_the_callers_choice() -> None:
    [request] = requests([Message(b"x", queue=QUEUES[5])])
    assert (request.queue, request.fixed) == (QUEUES[5], True)
    with pytest.raises(UsageError, match="message 0 is for T/b-z/0, which cannot be written"):
        requests([Message(b"x", queue=MessageQueue("T", "b-z", 0))])


# --- what travels how -------------------------------------------------------------------------


def test_what_a_message_says_is_in_its_properties() -> None:
    message = Message(
        "grüße", tags="t", keys="k1 k2", properties={"a": "b", "TAGS": "loses"}, flag=7
    )
    [request] = requests([message])
    [(body, properties, flag)] = contents(request)
    assert body == "grüße".encode()
    assert flag == 7
    del properties["UNIQ_KEY"]
    assert properties == {"a": "b", "TAGS": "t", "KEYS": "k1 k2"}


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message(b"x", delay_level=3), "DELAY", "3"),
        (Message(b"x", deliver_at=1_700_000_000_000), "TIMER_DELIVER_MS", "1700000000000"),
        (Message(b"x", deliver_at=0), "TIMER_DELIVER_MS", "0"),
        (Message(b"x", properties={"DELAY": "2"}), "DELAY", "2"),
        (Message(b"x", properties={"TIMER_DELAY_SEC": "9"}), "TIMER_DELAY_SEC", "9"),
        (Message(b"x", properties={"TIMER_DELAY_MS": "9"}), "TIMER_DELAY_MS", "9"),
    ],
)
def test_a_delayed_message_travels_alone(message: Message, name: str, value: str) -> None:
    # In a batch a broker would not see the delay.
    made = requests([Message(b"a"), message, Message(b"b")], queues=QUEUES[:1])
    assert [(request.batch, request.rows) for request in made] == [
        (True, [0]),
        (False, [1]),
        (True, [2]),
    ]
    assert contents(made[1])[0][1][name] == value


def test_a_large_body_travels_alone_and_compressed() -> None:
    body = b"a" * 4096
    [request] = requests([Message(body)])
    assert not request.batch
    assert request.sys_flag == 0x301
    assert len(request.body) < 100
    assert contents(request)[0][0] == body


@pytest.mark.parametrize(("kind", "flag"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
def test_each_compression(kind: str, flag: int) -> None:
    [request] = requests([Message(b"a" * 5000)], compression=kind)
    assert request.sys_flag == flag
    assert contents(request)[0][0] == b"a" * 5000


def test_what_does_not_shrink_is_not_compressed() -> None:
    body = os.urandom(5000)
    [request] = requests([Message(body)])
    assert (request.batch, request.sys_flag, request.body) == (False, 0, body)


def test_an_empty_body_travels_in_a_batch_only() -> None:
    [request] = requests([Message(b"")], compress_above=0)
    assert request.batch
    assert contents(request)[0][0] == b""
    with pytest.raises(
        UsageError, match="message 1 cannot be sent: a delayed message needs a body"
    ):
        requests([Message(b"x"), Message(b"", delay_level=1)])


def test_a_batch_is_full_at_half_a_megabyte() -> None:
    made = requests([Message(b"x" * 4000)] * 400, queues=QUEUES[:1])
    assert all(request.batch for request in made)
    assert all(len(request.body) <= 512 * 1024 for request in made)
    assert len(made) == 4
    assert [row for request in made for row in request.rows] == list(range(400))


def test_no_request_is_larger_than_a_broker_takes() -> None:
    most = 10_000
    sizes = [most, most - 10, most - 200, 1, 0]
    messages = [Message(b"x" * size) for size in sizes]
    made = requests(messages, queues=QUEUES[:1], compress_above=1 << 30, max_message=most)
    assert all(len(request.body) <= most for request in made)
    assert [len(by_row(made)[row][1]) for row in range(5)] == sizes


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            Message(b"x" * 101),
            "message 1 cannot be sent: its body of 101 bytes is more than the 100",
        ),
        (Message("\ud800"), "message 1 cannot be sent: the body is not valid text"),
        (Message(b"x", flag=1 << 31), "message 1 cannot be sent: its flag 2147483648"),
        (Message(b"x", tags="a\x02b"), "message 1 cannot be sent: .*TAGS"),
        (Message(b"x", properties={"": "v"}), "message 1 cannot be sent: a property needs a name"),
        (Message(b"x", properties={"p": "v" * 40_000}), "message 1 cannot be sent: .*32767"),
    ],
)
def test_what_a_broker_would_never_take_is_refused_by_row(message: Message, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        requests([Message(b"fine"), message], max_message=100)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown compression 'gzip'"):
        requests([Message(b"x" * 5000)], compression="gzip")


messages = st.builds(
    Message,
    body=st.binary(max_size=30),
    sharding_key=st.none() | st.sampled_from(["a", "b", "c"]),
    queue=st.none() | st.sampled_from(QUEUES),
    delay_level=st.just(0),
)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    st.lists(messages | st.builds(Message, st.just(b"late"), delay_level=st.just(1)), max_size=40),
    st.integers(0, 100),
    st.integers(0, 40),
    st.integers(60, 300),
)
def test_every_message_once_and_what_is_fixed_in_its_order(
    given_: list[Message], first: int, compress_above: int, most: int
) -> None:
    made = requests(given_, first, compress_above=compress_above, max_message=most)
    placed = by_row(made)
    assert sorted(placed) == list(range(len(given_)))
    assert [placed[row][1] for row in range(len(given_))] == [m.payload for m in given_]
    for queue in QUEUES:
        rows = [row for r in made if r.fixed and r.queue == queue for row in r.rows]
        assert rows == sorted(rows)
    for request in made:
        assert request.fixed == any(
            given_[row].queue is not None or given_[row].sharding_key is not None
            for row in request.rows
        )


# --- results ----------------------------------------------------------------------------------


def test_a_result_is_ok_without_an_error() -> None:
    assert SendResult("SEND_OK", "id", QUEUES[0], 5).ok
    assert SendResult("FLUSH_SLAVE_TIMEOUT", "id", QUEUES[0], 5).ok
    assert not SendResult("FAILED", "id", QUEUES[0], error=BusyError("busy")).ok


# --- ids --------------------------------------------------------------------------------------


def test_ids_have_javas_shape() -> None:
    before = int(time.time() * 1000)
    text = unique_id()
    after = int(time.time() * 1000)
    assert len(text) == 32
    assert text == text.upper()
    raw = bytes.fromhex(text)
    assert int.from_bytes(raw[4:6], "big") == os.getpid() & 0xFFFF
    month = datetime.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    made_at = int(month.timestamp() * 1000) + int.from_bytes(raw[10:14], "big")
    assert before <= made_at <= after


def test_ids_never_repeat() -> None:
    assert len({unique_id() for _ in range(20_000)}) == 20_000


FORK = """
import os
from rocketmq_spark.client.unique import unique_id

unique_id()  # the parent has begun to count before it forks
pipes = []
for _ in range(3):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, " ".join(unique_id() for _ in range(500)).encode())
        os._exit(0)
    os.close(write)
    pipes.append(read)
ids = [unique_id() for _ in range(500)]
for read in pipes:
    with os.fdopen(read) as pipe:
        ids += pipe.read().split()
assert len(ids) == 2000, len(ids)
# Without the process id, which two containers may share: the random part tells them apart.
assert len(set(ids)) == len({i[:8] + i[12:] for i in ids}) == 2000, len(set(ids))
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_ids_never_repeat_across_forks() -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", FORK],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout.strip()) == (0, "fine"), run.stderr
