"""Options declared as the fields of a dataclass, a row of a table each, and what is made of it.

A row says how the option is called, how its text is read, what it is when nobody sets it, for which
queries it is, and what it means. Nothing else about an option is written down anywhere.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rocketmq_spark.errors import UsageError

STREAM = "stream"
BATCH = "batch"
BOTH = f"{STREAM}, {BATCH}"

T = TypeVar("T")


@dataclass(frozen=True)
class Declared:
    """One row of the table."""

    field: str
    name: str
    parser: Callable[[str], Any]
    default: str
    kinds: str
    meaning: str
    section: str
    secret: bool

    @property
    def value(self) -> Any:
        """When nobody sets it."""
        return self.parser(self.default) if self.default else None


def option(
    name: str,
    parser: Callable[[str], Any],
    default: str,
    meaning: str,
    kinds: str = BOTH,
    *,
    section: str = "",
    secret: bool = False,
) -> Any:
    """A field that is an option. `default` is text as a user would write it; '' means none.

    The first option of a section names it.
    """
    row = {
        "name": name,
        "parser": parser,
        "default": default,
        "kinds": kinds,
        "meaning": meaning,
        "section": section,
        "secret": secret,
    }
    value = parser(default) if default else None
    return dataclasses.field(default=value, repr=False, metadata=row)


def same_as(table: type[Any], field: str, section: str = "") -> Any:
    """The option of another table once more."""
    (row,) = (f for f in dataclasses.fields(table) if f.name == field)
    metadata = {**row.metadata, "section": section}
    return dataclasses.field(default=row.default, repr=False, metadata=metadata)


def declared(table: type[Any]) -> Iterator[Declared]:
    """The rows, in order."""
    section = ""
    for field in dataclasses.fields(table):
        section = field.metadata["section"] or section
        yield Declared(field=field.name, **{**field.metadata, "section": section})


def read(table: type[T], given: Mapping[str, str], kind: str = "") -> T:
    """A user's options, checked one by one; for a STREAM, a BATCH, or either."""
    known = {row.name.lower(): row for row in declared(table)}
    values = {}
    for name, text in given.items():
        row = known.get(name.lower())
        if row is None:
            raise UsageError(_unknown(name, known))
        if kind not in row.kinds:
            other = STREAM if kind == BATCH else BATCH
            raise UsageError(f"option {row.name} is for a {other} query; this is a {kind} query")
        try:
            values[row.field] = row.parser(text)
        except UsageError:
            raise  # names the option, and the place inside its text
        except ValueError as error:
            shown = "***" if row.secret else repr(text)
            raise UsageError(f"option {row.name} is {shown}: {error}") from error
    return table(**values)


def _unknown(name: str, known: Mapping[str, Declared]) -> str:
    near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
    hint = f"did you mean {known[near[0]].name}?" if near else "the README lists all options"
    return f"unknown option {name!r}: {hint}"


def shown(options: Any) -> str:
    """A repr: only what differs from the defaults; a secret is never shown."""
    parts = []
    for row in declared(type(options)):
        value = getattr(options, row.field)
        if value != row.value:
            parts.append(f"{row.name}={'***' if row.secret else repr(value)}")
    return f"{type(options).__name__}({', '.join(parts)})"


def as_markdown(table: type[Any]) -> str:
    """A table for each section."""
    lines = []
    section = None
    for row in declared(table):
        if row.section != section:
            section = row.section
            lines += ["", f"**{section}**", "", "| option | default | for | meaning |"]
            lines += ["|---|---|---|---|"]
        default = f"`{row.default}`" if row.default else ""
        meaning = row.meaning.replace("|", "\\|")
        lines.append(f"| `{row.name}` | {default} | {row.kinds} | {meaning} |")
    return "\n".join(lines[1:]) + "\n"
