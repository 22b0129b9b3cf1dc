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
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

# The count that every broker gives from memory unless its operator changed it.
FIRST_STEP = 32
# Full answers in a row before a larger count is tried; after a vain try, ever longer.
_FIRST_PATIENCE = 2
_LONGEST_PATIENCE = 256
# An answer is to take at most one of so many parts of what may be held; where an operator allows
# large answers, a few of them would fill the memory otherwise.
_LEAST_ANSWERS = 4
# Messages asked for before anything is known of their size, so that large ones do not come in a
# flood; and asks in flight after that, beside two for each answer.
_FIRST_COUNT = 4
_FIRST_DEPTH = 4


class Ask(NamedTuple):
    """The messages of [offset, end), and more if more than those are `wanted`.

    The extra ones are asked for by somebody else too: they tell how much a broker would give, and
    leave no hole if it does not.
    """

    offset: int
    wanted: int
    end: int

    @property
    def extra(self) -> int:
        return self.wanted - (self.end - self.offset)


class Piece(NamedTuple):
    """What came for [offset, end): messages at these bytes of the memory they were received into,
    and what to add to their offsets. `reaches_back` if the first record begins before `offset`, as
    that of a whole batch may."""

    offset: int
    end: int
    span: tuple[int, int]
    delta: int = 0
    reaches_back: bool = False

    @property
    def size(self) -> int:
        at, stop = self.span
        return stop - at


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
        self._largest_answer = max_bytes // _LEAST_ANSWERS
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

    @property
    def oldest(self) -> Ask | None:
        """The one of them that was asked for first."""
        return next(iter(self._flying.values()), None)

    def overtaken(self, ask: Ask, later: object) -> bool:
        """Whether this ask has no answer and that later one, if there was one, has."""
        flying = self._flying
        return (
            isinstance(later, Ask)
            and flying.get(later.offset) is not later
            and flying.get(ask.offset) is ask
        )

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
        while self._holes and len(flying) < room:
            offset, end = heappop(self._holes)
            wanted = min(end - offset, self._largest_step)
            ask = flying[offset] = Ask(offset, wanted, offset + wanted)
            found.append(ask)
            if ask.end < end:
                heappush(self._holes, (ask.end, end))
        step = self._step if self._answers else min(self._step, _FIRST_COUNT)
        stop = min(self._frontier + (room - len(flying)) * step, self.end)
        extra = self._probe() if self._frontier < stop else 0
        for offset in range(self._frontier, stop, step):
            end = min(offset + step, stop)
            ask = flying[offset] = Ask(offset, end - offset + min(extra, self.end - end), end)
            found.append(ask)
            extra = 0
        self._frontier = max(self._frontier, stop)
        return found

    def _room(self) -> int:
        if not self._answers:
            return 1
        if not self._typical:
            return min(_FIRST_DEPTH, self._depth)
        # Two more for each answer: a broker reads all that is asked before it sends the first.
        pace = _FIRST_DEPTH + 2 * self._answers
        free = self._max_bytes - self._ready_bytes
        # Always one, or a message larger than the limit could never be read.
        return max(1, min(self._depth, pace, int(free / self._typical)))

    def _probe(self) -> int:
        """Now and then thrice as many more: perhaps the broker gives more at once by now."""
        if self._full < self._patience or 4 * self._typical > self._largest_answer:
            return 0
        self._full = 0
        return min(3 * self._step, self._largest_step - self._step)

    def answered(
        self,
        ask: Ask,
        after: int,
        span: tuple[int, int],
        delta: int = 0,
        reaches_back: bool = False,
    ) -> None:
        """The messages of [ask.offset, after) were received at these bytes."""
        offset, _, end = ask
        del self._flying[offset]
        self._answers += 1
        size = span[1] - span[0]
        if size:  # nothing is learnt from no messages
            self._typical = max(size, self._typical * 0.95)
            self._learn(ask, after - offset, size)
        if after < end:
            heappush(self._holes, (after, end))
        elif end == self._frontier:
            # A broker may give or skip more than was asked for; nobody else has that part.
            self._frontier = after
        else:
            after = end
        self._ready[offset] = Piece(offset, after, span, delta, reaches_back)
        self._ready_bytes += size
        self._run_on()
        if self._ready_bytes > self._max_bytes:
            self._shed()

    def as_asked(self, answers: list[tuple[Ask, tuple[int, int]]], delta: int) -> None:
        """Each brings the messages of its ask, no more and no less, at these bytes.

        The same as `answered` for each of them, at less cost, for nearly all answers are such.
        """
        flying, ready, step, most = self._flying, self._ready, self._step, self._largest_answer
        typical, total, others = self._typical, 0, []
        for ask, span in answers:
            offset, wanted, end = ask
            size = span[1] - span[0]
            if wanted != step or end - offset != step or size > most:
                others.append((ask, span))
                continue
            del flying[offset]
            typical = max(size, typical * 0.95)
            ready[offset] = Piece(offset, end, span, delta)
            total += size
        usual = len(answers) - len(others)
        self._answers += usual
        self._full += usual
        self._typical = typical
        self._ready_bytes += total
        self._run_on()
        if self._ready_bytes > self._max_bytes:
            self._shed()
        for ask, span in others:
            self.answered(ask, ask.end, span, delta)

    def began_late(self, ask: Ask, first: int) -> Ask:
        """An answer begins with message `first` instead of the one asked for. What is missing is
        asked for by itself; the rest of the ask, to be `answered` in its place."""
        del self._flying[ask.offset]
        heappush(self._holes, (ask.offset, first))
        rest = self._flying[first] = Ask(first, ask.offset + ask.wanted - first, ask.end)
        return rest

    def followed(self, ask: Ask) -> bool:
        """Whether what comes after an ask was asked for too."""
        return ask.end != self._frontier

    def failed(self, ask: Ask) -> None:
        """No answer, or one that says try again."""
        del self._flying[ask.offset]
        heappush(self._holes, (ask.offset, ask.end))

    def _learn(self, ask: Ask, got: int, size: int) -> None:
        """How many to ask for, by the answer to one ask."""
        asked = ask.end - ask.offset
        most = min(got, ask.wanted)
        if got < asked:
            self._step = max(1, min(got, self._largest_step))
            self._full = 0
        elif most > self._step:
            self._step, self._patience = most, _FIRST_PATIENCE
        elif ask.extra and got == asked:
            self._patience = min(self._patience * 2, _LONGEST_PATIENCE)
        elif asked == self._step:
            self._full += 1
        self._step = max(1, min(self._step, self._largest_answer * got // size))

    def _run_on(self) -> None:
        """As far as pieces follow on each other."""
        while (following := self._ready.get(self._next_ready)) is not None:
            self._next_ready = following.end
            self._run_bytes += following.size

    def _shed(self) -> None:
        """Forget what came too early rather than hold more than allowed; it is asked for again."""
        while self._ready_bytes > self._max_bytes:
            last = max(self._ready)
            if last < self._next_ready:
                return
            piece = self._ready.pop(last)
            self._ready_bytes -= piece.size
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
            _, self.position, (at, stop), *_ = piece
            size += stop - at
        self._ready_bytes -= size
        self._run_bytes -= size
        return pieces

    def forget_ready(self) -> None:
        """Nobody will take any more."""
        self._ready.clear()

    def waiting(self) -> list[Piece]:
        """Ready pieces in the order of their places in memory."""
        return sorted(self._ready.values(), key=attrgetter("span"))

    def moved(self, piece: Piece, at: int) -> None:
        """A ready piece has another place now."""
        self._ready[piece.offset] = piece._replace(span=(at, at + piece.size))

    def __repr__(self) -> str:
        return (
            f"<Window at {self.position} of {self.end}, {len(self._flying)} in flight, "
            f"{self._ready_bytes} bytes ready, step {self._step}>"
        )


def runs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces that can be decoded as one: of one delta, and none with messages of its neighbour.

    An inner batch is one record of many offsets, given whole to whoever asks for any of them; two
    pieces that meet within it both hold it, and each is to give its own part only.
    """
    run: list[Piece] = []
    for piece in pieces:
        if run and (piece.reaches_back or piece.delta != run[0].delta):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run
