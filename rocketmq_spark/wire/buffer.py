"""Cuts a stream of bytes into frames. "Not enough yet" is an empty list, never an exception."""

from __future__ import annotations

import struct

from rocketmq_spark.errors import FrameError, FrameTooLargeError
from rocketmq_spark.wire.frame import Frame, decode

# The most message bytes that a Java broker puts in one answer (MessageStoreConfig's ceiling);
# anything longer is not RocketMQ talking.
MAX_FRAME = 128 * 1024 * 1024

# A quiet connection keeps a small buffer; one that fills it gets larger ones, up to a size where
# the cost of a new buffer no longer shows.
_FIRST_CHUNK = 16 * 1024
_LARGEST_CHUNK = 1024 * 1024

_LENGTH = struct.Struct(">I")
_LEAST = 4  # bytes of a frame after its length: those that tell of its header


class FrameBuffer:
    """Cuts received bytes into frames without copying their bodies.

    Bytes are received straight into `writable()`; a body is a view into that memory, which lives
    as long as somebody holds the view. A frame that does not fit in what is left of the buffer
    moves, once, to the start of a new one.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._chunk = memoryview(bytearray(_FIRST_CHUNK))
        self._start = 0  # of the first frame not yet handed out
        self._end = 0  # of what has been received
        self._wanted = 4  # bytes that the frame at _start needs, as far as known

    def writable(self) -> memoryview:
        """Where the next bytes go; never empty, unless it is `full`."""
        return self._chunk[self._end :]

    @property
    def full(self) -> bool:
        """Nothing can be received before the owner makes room; a plain buffer makes its own."""
        ends_within = self._start + self._wanted <= len(self._chunk)
        return not (ends_within and self._end < len(self._chunk))

    def received(self, count: int) -> list[Frame]:
        """Account for `count` bytes in `writable()`; the frames they complete."""
        memory = self.memory
        return [decode(memory, start, end) for start, end in self.cut(count)]

    def cut(self, count: int) -> list[tuple[int, int]]:
        """The same, but only where they begin and end in `memory`, without their lengths."""
        chunk, start, end = self._chunk, self._start, self._end + count
        unpack, max_frame = _LENGTH.unpack_from, self._max_frame
        frames = []
        wanted = 4
        while end - start >= 4:
            length = unpack(chunk, start)[0]
            if not _LEAST <= length <= max_frame:
                raise self._wrong(length)
            after = start + 4 + length
            if end < after:
                wanted = 4 + length
                break
            frames.append((start + 4, after))
            start = after
        self._start, self._end, self._wanted = start, end, wanted
        self._make_room()
        return frames

    def _wrong(self, length: int) -> FrameError:
        if length < _LEAST:
            return FrameError(f"a frame of {length} bytes is too short to hold a header")
        return FrameTooLargeError(
            f"a frame of {length} bytes is announced, more than the {self._max_frame} allowed; "
            "the peer does not speak RocketMQ's remoting protocol"
        )

    @property
    def memory(self) -> memoryview:
        """What `writable()` is a part of."""
        return self._chunk

    def take_over(self, other: FrameBuffer) -> None:
        """Go on where `other` is: with the frame that it has only the beginning of."""
        unfinished = bytes(other._chunk[other._start : other._end])
        while unfinished:
            room = self.writable()
            part = unfinished[: len(room)]
            room[: len(part)] = part
            self.received(len(part))
            unfinished = unfinished[len(part) :]

    def _make_room(self) -> None:
        if not self.full:
            return
        size = min(len(self._chunk) * 4, _LARGEST_CHUNK)
        chunk = memoryview(bytearray(max(size, self._wanted)))
        kept = self._end - self._start
        chunk[:kept] = self._chunk[self._start : self._end]
        self._chunk, self._start, self._end = chunk, 0, kept


class Landing(FrameBuffer):
    """A buffer whose frames stay where they are until `tidy` is told which of them to keep.

    So many answers can be decoded where they have landed, and the memory is used again: new memory
    would cost as much as copying what is put in it.
    """

    def tidy(self, kept: list[tuple[int, int]], size: int) -> list[int]:
        """Forget all but these spans and the unfinished frame; where each of the spans begins now.

        There are at least `size` bytes then, and room to receive into. Spans are given in the order
        of their places.
        """
        unfinished = self._end - self._start
        least = sum(end - start for start, end in kept) + max(self._wanted, unfinished + 1)
        target = self._chunk
        if max(least, size) > len(target):
            # With some to spare, or each frame of a growing heap would move all of it.
            target = memoryview(bytearray(max(least + least // 4, size)))
        places = []
        at = 0
        for start, end in [*kept, (self._start, self._end)]:
            if target is not self._chunk or start != at:
                target[at : at + end - start] = self._chunk[start:end]
            places.append(at)
            at += end - start
        self._chunk, self._start, self._end = target, places.pop(), at
        return places

    def take_over(self, other: FrameBuffer) -> None:
        self.tidy([(0, self._start)], self._end + other._end - other._start + 1)
        super().take_over(other)

    def clear(self) -> None:
        """Forget everything."""
        self._start, self._end, self._wanted = 0, 0, 4

    def drop_unfinished(self) -> None:
        """The rest of a frame will not come: its connection has ended."""
        self._end, self._wanted = self._start, 4

    def _make_room(self) -> None:
        """Only `tidy` makes room."""
