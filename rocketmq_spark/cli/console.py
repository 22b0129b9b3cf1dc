"""The terminal, or whatever stands in its place."""

from __future__ import annotations

from rich import console


class Console(console.Console):
    """Rich's own, but a reader that has gone (`| head`) is left to `app.run`."""

    def on_broken_pipe(self) -> None:
        raise
