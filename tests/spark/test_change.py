"""Whatever changes between two batches, every message is there once: counted row by row.

Streams go to files, which Spark's own sink keeps exactly once for each batch id: a batch that is
replayed writes nothing twice, but a batch that is planned otherwise than before does, and shows.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from rocketmq_spark.client import Client, Message
from rocketmq_spark.core.model import MessageQueue
from rocketmq_spark.errors import OffsetOutOfRangeError
from rocketmq_spark.local_cluster import LocalCluster
from tests.waiting import until

from .driver import Driver, Stream, half_done
from .queries import ADMISSION_CONTROL, COLUMNS, Run, Source, report, send, written

Entry = tuple[str, str, int, int, str]

# Small files, all but the last of them expired, and removed when mqadmin says so and not before.
FILE_SIZE = 2 * 1024 * 1024
EXPIRING = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "fileReservedTime": "0",
    "deleteWhen": "25",  # an hour that never comes
    "cleanResourceInterval": "500",
}


@pytest.fixture(scope="module")
def changing() -> Iterator[LocalCluster]:
    """One broker at first; tests add to it."""
    with LocalCluster(brokers=1, config=EXPIRING) as running:
        yield running


@pytest.fixture(scope="module")
def client(changing: LocalCluster) -> Iterator[Client]:
    with changing.client(timeout=15) as client:
        yield client


@dataclass
class Book:
    """A topic, a stream that reads it, and what was sent."""

    client: Client
    source: Source
    topic: str
    folder: Path
    sent: list[Entry] = field(default_factory=list)

    def queues(self) -> list[MessageQueue]:
        return self.client.queues(self.topic)

    def send(self, count: int, queues: list[MessageQueue] | None = None, size: int = 0) -> None:
        """The same number for each (given) queue."""
        places = cycle(queues or self.client.writable_queues(self.topic))
        messages = [
            Message(f"{len(self.sent) + n:06d}".ljust(size, "."), queue=next(places))
            for n in range(count)
        ]
        for message, result in zip(messages, send(self.client, self.topic, messages), strict=True):
            queue, body = result.queue, message.body
            text = body if isinstance(body, str) else bytes(body).decode()
            self.sent.append(
                (queue.topic, queue.broker_name, queue.queue_id, result.queue_offset, text)
            )

    def read(self, **options: object) -> Run:
        return self.source.run_now(self.folder, COLUMNS, **options)

    def catch_up(self, **options: object) -> list[int]:
        """Read on after a crash, to the end; how many messages each batch had.

        Before Spark 4.2 a run of what is available is one batch, and here that is the one to be
        repeated: what is new is left for the run after it.
        """
        batches = self.read(**options).batches
        return batches if ADMISSION_CONTROL else batches + self.read(**options).batches

    def start(self, **options: object) -> Run:
        return self.source.start(self.folder, COLUMNS, **options)

    def rows(self) -> list[Entry]:
        return [
            (
                *(row["topic"], row["brokerName"], row["queueId"], row["queueOffset"]),
                bytes(row["body"]).decode(),
            )
            for row in written(self.folder)
        ]

    def wait(self, run: Run, count: int | None = None) -> None:
        """Until so many rows have come, all by default."""
        wanted = len(self.sent) if count is None else count

        def come() -> bool:
            run.check()
            return len(self.rows()) >= wanted

        until(come, what=f"{wanted} rows")

    def check(self) -> None:
        """Each message once, with its own body, and nothing else."""
        found, sent = Counter(self.rows()), Counter(self.sent)
        lost, extra = sent - found, found - sent
        assert not lost and not extra, (
            f"{lost.total()} lost and {extra.total()} too many of {sent.total()}: "
            f"{sorted(lost)[:5]} and {sorted(extra)[:5]}"
        )

    def committed(self) -> int:
        """The last batch that is done, -1 before the first."""
        done = (self.folder / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(entry.name) for entry in done), default=-1)

    def undo(self) -> None:
        """As if the driver had died in the last batch: planned, and neither written nor done."""
        last = self.committed()
        for folder in ("checkpoint/commits", "rows/_spark_metadata"):
            (self.folder / folder / str(last)).unlink()
            (self.folder / folder / f".{last}.crc").unlink(missing_ok=True)


@pytest.fixture
def new_book(
    changing: LocalCluster, client: Client, spark: SparkSession, tmp_path: Path
) -> Callable[..., Book]:
    def make(queues: int = 4, **options: str) -> Book:
        topic = f"t_{uuid.uuid4().hex[:12]}"
        client.create_topic(topic, queues, brokers=["broker-a"])
        given = {
            "nameServer": changing.name_server,
            "topic": topic,
            "startingOffsets": "earliest",
            "executors": "2",
            **options,
        }
        return Book(client, Source(spark, given), topic, tmp_path / topic)

    return make


@pytest.fixture
def book(new_book: Callable[..., Book]) -> Book:
    return new_book()


# --- the query --------------------------------------------------------------------------------


@pytest.mark.compat
def test_a_restart_after_every_batch(book: Book) -> None:
    for _ in range(3):
        book.send(40)
        done = book.committed()
        with book.start(maxOffsetsPerTrigger=24) as run:

            def one_more(run: Run = run, done: int = done) -> bool:
                run.check()
                return book.committed() > done

            until(one_more, what="one more batch")
    book.send(20)
    book.read(maxOffsetsPerTrigger=50)
    book.check()


@pytest.mark.compat
def test_a_checkpoint_is_read_again_by_others(book: Book) -> None:
    """Also a batch that was planned by one strategy and is read by another."""
    book.send(41)
    book.read()
    for options in (
        {"allocate.strategy": "BY_LAG", "executors": "5"},
        {"allocate.strategy": "STICKY", "executors": "1", "minPartitions": "7"},
        {"allocate.strategy": "CONSISTENT_HASH", "executors": "a@1,b@2,c@3"},
    ):
        book.undo()
        book.send(19)
        assert len(book.catch_up(**options)) == 2  # the one that was undone, and what came since
        book.check()
    last = {entry[4] for entry in book.sent[-19:]}
    readers = {r["consumerId"] for r in written(book.folder) if r["body"].decode() in last}
    assert readers and readers <= {"a@1", "b@2", "c@3"}


@pytest.mark.compat
@pytest.mark.timeout(600)
def test_the_driver_is_killed_in_the_middle_of_a_batch(
    new_book: Callable[..., Book], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One process and two streams: one dies while its tasks read, one in batch 0, from `latest`.

    Not the second one through Spark Connect: its foreachBatch is a process of its own, so there is
    no driver to stop in.
    """
    connect = request.config.getoption("--connect")
    middle, first = new_book(), new_book(startingOffsets="latest")
    middle.send(80)
    first.send(40)
    first.sent.clear()  # before it began
    streams = [Stream(str(middle.folder), middle.source.options, "task")]
    if not connect:
        streams.append(Stream(str(first.folder), first.source.options, "driver"))
    # Tasks get a few rows at a time, so that there is a middle.
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "5"}
    with Driver(tmp_path / "driver", streams, conf=conf, connect=connect) as driver:

        def come(book: Book, sign: str) -> Callable[[], bool]:
            return lambda: driver.check() is None and (book.folder / sign).exists()

        until(lambda: driver.check() is None and len(middle.rows()) == 80, 240, "80 rows")
        if not connect:
            until(come(first, "stalled"), what="batch 0")
        (middle.folder / "stall").touch()
        middle.send(60)
        first.send(12)
        until(come(middle, "stalled"), what="the middle of a batch")
        driver.kill()
    planned = middle.committed() + 1
    assert (middle.folder / "checkpoint" / "offsets" / str(planned)).exists()
    half = Counter(tuple(row.values()) for row in half_done(middle.folder))
    assert 0 < half.total() < 60
    middle.send(10)
    middle.catch_up()
    middle.check()
    assert half <= Counter(row[:4] for row in middle.rows())
    if connect:
        return

    assert first.committed() == -1
    assert (first.folder / "checkpoint" / "offsets" / "0").exists()
    first.send(9)
    first.catch_up()
    first.check()


# --- queues and brokers -----------------------------------------------------------------------


@pytest.mark.compat
def test_queues_and_a_broker_are_added_while_it_runs(
    changing: LocalCluster, client: Client, new_book: Callable[..., Book]
) -> None:
    book = new_book(startingOffsets="latest", discoveryInterval="1s")
    with book.start() as run:
        until(lambda: run.check() is None and book.committed() >= 0, what="batch 0")
        book.send(40)
        book.wait(run)
        client.create_topic(book.topic, 8, brokers=["broker-a"])
        book.send(80)  # half of them before anybody knows of the new queues
        book.wait(run)
        added = changing.add_broker()
        client.create_topic(book.topic, 8, brokers=[added])
        book.send(160)
        book.wait(run)
        book.check()
        seen = {(row[1], row[2]) for row in book.rows()}
        assert seen == {(name, n) for name in ("broker-a", added) for n in range(8)}
        why = f"8 queues added ({book.topic}/{added}/0, "
        if ADMISSION_CONTROL:
            run.wait_for_progress(lambda told: why in told.get("rebalance", {}).get("why", ""))


def test_read_queues_are_removed_and_put_back(
    client: Client, new_book: Callable[..., Book]
) -> None:
    book = new_book(discoveryInterval="1s")
    with book.start() as run:
        book.send(40)
        book.wait(run)
        client.create_topic(book.topic, 4, read_queues=2, brokers=["broker-a"])
        readable = book.queues()
        assert [queue.queue_id for queue in readable] == [0, 1]

        def noticed() -> bool:
            book.send(1, readable[:1])
            book.wait(run)
            offsets = report(run.query.lastProgress)["offsets"][book.topic]["broker-a"]
            return set(offsets) == {"0", "1"}

        until(noticed, what="a plan without the removed queues")
        so_far = len(book.sent)
        book.send(40)
        book.wait(run, so_far + 20)
        book.send(4)
        book.wait(run, so_far + 22)
        counts = Counter(row[2] for row in book.rows())
        assert (counts[2], counts[3]) == (10, 10)  # as before
        client.create_topic(book.topic, 4, brokers=["broker-a"])
        book.wait(run)
    book.send(8)
    book.read()
    book.check()


# --- messages that are gone -------------------------------------------------------------------


@pytest.mark.compat
def test_a_topic_is_deleted_and_made_again(client: Client, book: Book) -> None:
    def make_again(count: int) -> None:
        client.delete_topic(book.topic)
        client.create_topic(book.topic, 4, brokers=["broker-a"])
        book.send(count)

    book.send(60)
    book.read()
    make_again(8)
    with pytest.raises(StreamingQueryException) as failure:
        book.read()
    words = str(failure.value)
    assert f"{book.topic}/broker-a/0: offset 15 is wanted and 0 to 2 are there" in words
    assert "it can go on from 0 (3 more queues like it). Set failOnDataLoss=false" in words
    book.read(failOnDataLoss=False)
    book.check()
    with book.start(failOnDataLoss=False, discoveryInterval="1s") as run:
        book.send(60)
        book.wait(run)
        make_again(12)
        book.wait(run)
    book.check()


@pytest.mark.slow  # the broker begins to clean up a minute after its start
@pytest.mark.timeout(900)
def test_messages_expire_below_the_checkpoint(
    changing: LocalCluster, client: Client, new_book: Callable[..., Book]
) -> None:
    """Once before the batch is planned, and once between its plan and its reading."""
    behind = new_book(1)
    (queue,) = behind.queues()
    behind.send(10)
    behind.read()
    planned = Book(client, behind.source, behind.topic, behind.folder.with_name("planned"))
    planned.read()
    # Six megabytes, so at least one file can go; larger bodies would travel compressed.
    behind.send(1800, size=3500)
    planned.read()
    planned.undo()

    low = _expire(changing, client, queue)
    assert 10 < low < client.offsets(queue)[1] == 1810

    for book, words in (
        (behind, f"offset 10 is wanted and {low} to 1810 are there, so {low - 10} messages were"),
        (planned, f"cannot read offset 10 of {queue}"),
    ):
        with pytest.raises(StreamingQueryException) as failure:
            book.read()
        assert words in str(failure.value)
        assert "failOnDataLoss=false" in str(failure.value)
        book.sent = behind.sent[:10] + [entry for entry in behind.sent if entry[3] >= low]
        book.read(failOnDataLoss=False)
        book.check()
        book.read()  # accepted once: it goes on without the option
        book.check()


def _expire(cluster: LocalCluster, client: Client, queue: MessageQueue) -> int:
    """Let the broker remove every file but its last, and wait until it says so; the first offset
    that is left.

    A broker begins to clean up a minute after its start, goes file by file, gives up on a file
    that is being read, and moves the first offset some time after the last file has gone.
    """
    address = cluster.brokers[queue.broker_name].address

    def one_left() -> bool:
        cluster.mqadmin("deleteExpiredCommitLog", "-c", cluster.cluster_name)
        status = cluster.mqadmin("brokerStatus", "-b", address)
        first, end = (
            int(re.findall(rf"{name}\s*:\s*(\d+)", status)[0])
            for name in ("commitLogMinOffset", "commitLogMaxOffset")
        )
        return first == (end - 1) // FILE_SIZE * FILE_SIZE

    until(one_left, 300, "one file is left")

    def all_there() -> int:
        """The first offset, once a message can be read there."""
        low = client.offsets(queue)[0]
        try:
            with closing(client.read(queue, low, low + 1, ["queueOffset"])) as reader:
                return low if next(reader, None) is not None else 0
        except OffsetOutOfRangeError:
            return 0

    return until(all_there, what="the first offset follows the files")
