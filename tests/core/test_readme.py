"""The README's table of options is the code's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketmq_spark.core.options import as_markdown

README = Path(__file__).parents[2] / "README.md"
BEGIN = "<!-- options: made by `rocketmq-spark options` -->\n"
END = "<!-- /options -->\n"
WRITE = "ROCKETMQ_SPARK_WRITE_README"


def test_the_readme_shows_the_options_that_there_are() -> None:
    text = README.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    shown, end, after = rest.partition(END)
    assert begin and end, f"{README.name} has lost the lines {BEGIN!r} and {END!r}"
    wanted = f"\n{as_markdown()}\n"
    if os.environ.get(WRITE):
        README.write_text(before + begin + wanted + end + after, "utf-8")
        return
    if shown != wanted:
        pytest.fail(
            f"the options in {README.name} are not those of core/options.py; write them anew: "
            f"{WRITE}=1 python -m pytest tests/core/{Path(__file__).name}",
            pytrace=False,
        )
