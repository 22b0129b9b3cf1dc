"""Arithmetic of a pipelined read: what to ask for next, what is on its way, what can be handed on.

A range [start, end) is asked for in pieces of `step` messages, many at a time. Answers come in any
order and may be short: the rest of a short one is asked for again, before anything further ahead.
How many messages a broker gives at once (32, or 8 from disk, or whatever its operator set) is not
known beforehand; it is learnt from the answers.

    start            position                    frontier              end
      |-- handed on --|-- ready --|  on its way  |-- not yet asked ------|

No sockets and no clock: it is told of answers and says what to do.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter

from rocketmq_spark.wire.frame import Buffer

# The count that every broker gives from memory unless its operator changed it.
FIRST_STEP = 32
# Full answers in a row before a larger count is tried; after a vain try, ever longer.
_FIRST_PATIENCE = 2
_LONGEST_PATIENCE = 256
# Asked for before the size of an answer is known, so that large messages do not come in a flood.
_FIRST_DEPTH = 4


@dataclass(slots=True)
class Ask:
    """The messages of [offset, end), and `extra` ones if the broker gives so many at once.

    The extra ones are asked for by somebody else too: they tell how much a broker would give, and
    leave no hole if it does not.
    """

    offset: int
    end: int
    extra: int = 0

    @property
    def wanted(self) -> int:
        """How many the broker is asked for."""
        return self.end - self.offset + self.extra


@dataclass(slots=True)
class Piece:
    """What came for [offset, end): message bytes, what to add to their offsets, and the place of
    the bytes in the memory they were received into."""

    offset: int
    end: int
    body: Buffer
    delta: int = 0
    at: int = 0

    @property
    def span(self) -> tuple[int, int]:
        return self.at, self.at + len(self.body)


class Window:
    def __init__(
        self,
        start: int,
        end: int,
        *,
        depth: int,
        max_bytes: int,
        largest_step: int = 1024,
    ) -> None:
        self.position = start  # everything before it has been handed on
        self.end = end
        self._frontier = start  # everything from it on was never asked for
        self._depth = depth
        self._max_bytes = max_bytes
        self._largest_step = largest_step
        self._holes: list[tuple[int, int]] = []  # heap of (offset, end) to ask for again
        self._flying: dict[int, Ask] = {}  # by offset
        self._answers = 0
        self._ready: dict[int, Piece] = {}
        self._ready_bytes = 0
        self._next_ready = start  # end of the unbroken run of ready pieces
        self._run_bytes = 0
        self._typical = 0.0  # size of an answer: the largest seen lately
        self._step = min(FIRST_STEP, largest_step)
        self._full = 0
        self._patience = _FIRST_PATIENCE

    @property
    def done(self) -> bool:
        return self.position >= self.end

    @property
    def flying(self) -> list[Ask]:
        """Asks without an answer."""
        return list(self._flying.values())

    def asks(self) -> list[Ask]:
        """What to ask for now; each must end in `answered` or `failed`.

        Many at once cost both sides less, so it is nothing until a quarter of the room is free; but
        what holds up the rest is asked for at once.
        """
        found: list[Ask] = []
        room = self._room()
        flying = self._flying
        if not self._holes and len(flying) > room - room // 4:
            return found
        while len(flying) < room:
            if self._holes:
                offset, end = heappop(self._holes)
                ask = Ask(offset, min(end, offset + self._largest_step))
                if ask.end < end:
                    heappush(self._holes, (ask.end, end))
            elif self._frontier < self.end:
                end = min(self._frontier + self._step, self.end)
                ask = Ask(self._frontier, end, self._probe(end))
                self._frontier = end
            else:
                break
            flying[ask.offset] = ask
            found.append(ask)
        return found

    def _room(self) -> int:
        if not self._typical:
            return min(_FIRST_DEPTH, self._depth)
        # Two more for each answer: a broker reads all that is asked before it sends the first.
        pace = _FIRST_DEPTH + 2 * self._answers
        free = self._max_bytes - self._ready_bytes
        # Always one, or a message larger than the limit could never be read.
        return max(1, min(self._depth, pace, int(free / self._typical)))

    def _probe(self, end: int) -> int:
        """Now and then thrice as many more: perhaps the broker gives more at once by now."""
        if self._full < self._patience:
            return 0
        self._full = 0
        return min(3 * self._step, self._largest_step - self._step, self.end - end)

    def answered(self, ask: Ask, after: int, body: Buffer, delta: int = 0, at: int = 0) -> None:
        """`body`, received at this place, holds the messages of [ask.offset, after)."""
        del self._flying[ask.offset]
        self._answers += 1
        end = ask.end
        if body:
            self._typical = max(len(body), self._typical * 0.95)
            self._learn(ask, after - ask.offset)
        if after < end:
            heappush(self._holes, (after, end))
        elif end == self._frontier:
            # A filter may have skipped further than asked; nobody else has that part.
            self._frontier = max(end, after)
        else:
            after = end
        self._put(Piece(ask.offset, after, body, delta, at))
        if self._ready_bytes > self._max_bytes:
            self._shed()

    def beyond(self, ask: Ask, after: int) -> bool:
        """Whether an answer up to `after` holds messages that another ask is to bring."""
        return after > ask.end != self._frontier

    def failed(self, ask: Ask) -> None:
        """No answer, or one that says try again."""
        del self._flying[ask.offset]
        heappush(self._holes, (ask.offset, ask.end))

    def _learn(self, ask: Ask, got: int) -> None:
        asked = ask.end - ask.offset
        most = min(got, asked + ask.extra)
        if got < asked:
            self._step = max(1, min(got, self._largest_step))
            self._full = 0
        elif most > self._step:
            self._step, self._patience = most, _FIRST_PATIENCE
        elif ask.extra and got == asked:
            self._patience = min(self._patience * 2, _LONGEST_PATIENCE)
        elif asked == self._step:
            self._full += 1

    def _put(self, piece: Piece) -> None:
        self._ready[piece.offset] = piece
        self._ready_bytes += len(piece.body)
        while (following := self._ready.get(self._next_ready)) is not None:
            self._next_ready = following.end
            self._run_bytes += len(following.body)

    def _shed(self) -> None:
        """Forget what came too early rather than hold more than allowed; it is asked for again."""
        while self._ready_bytes > self._max_bytes:
            last = max(self._ready)
            if last < self._next_ready:
                return
            piece = self._ready.pop(last)
            self._ready_bytes -= len(piece.body)
            # An answer may reach beyond the range; what is asked for never does.
            heappush(self._holes, (piece.offset, min(piece.end, self.end)))

    @property
    def ready_bytes(self) -> int:
        """Bytes received and not yet taken."""
        return self._ready_bytes

    @property
    def takable(self) -> int:
        """Bytes that `take` would give."""
        return self._run_bytes

    @property
    def complete(self) -> bool:
        """Everything up to the end has come."""
        return self._next_ready >= self.end

    def take(self, most: int = sys.maxsize) -> list[Piece]:
        """Pieces that follow on each other from `position`, which moves behind them: all of them,
        or as many as are needed for `most` bytes."""
        pieces = []
        size = 0
        while self.position < self._next_ready and size < most:
            piece = self._ready.pop(self.position)
            pieces.append(piece)
            self.position = piece.end
            size += len(piece.body)
        self._ready_bytes -= size
        self._run_bytes -= size
        return pieces

    def forget_ready(self) -> None:
        """Nobody will take any more."""
        self._ready.clear()

    def waiting(self) -> list[Piece]:
        """Ready pieces in the order of their places in memory."""
        return sorted(self._ready.values(), key=attrgetter("at"))

    def __repr__(self) -> str:
        return (
            f"<Window at {self.position} of {self.end}, {len(self._flying)} in flight, "
            f"{self._ready_bytes} bytes ready, step {self._step}>"
        )
