"""Random cases that are the same on every run, and few enough for a quick suite."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("core", derandomize=True, deadline=None, max_examples=75, database=None)
settings.load_profile("core")
