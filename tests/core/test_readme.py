"""The README's tables of options are the code's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketmq_spark.core import options, sink_options

README = Path(__file__).parents[2] / "README.md"
TABLES = {"options": options.as_markdown, "sink options": sink_options.as_markdown}
WRITE = "ROCKETMQ_SPARK_WRITE_README"


@pytest.mark.parametrize("name", TABLES)
def test_the_readme_shows_the_options_that_there_are(name: str) -> None:
    begins, ends = f"<!-- {name}: made by `rocketmq-spark options` -->\n", f"<!-- /{name} -->\n"
    text = README.read_text("utf-8")
    before, begin, rest = text.partition(begins)
    shown, end, after = rest.partition(ends)
    assert begin and end, f"{README.name} has lost the lines {begins!r} and {ends!r}"
    wanted = f"\n{TABLES[name]()}\n"
    if os.environ.get(WRITE):
        README.write_text(before + begin + wanted + end + after, "utf-8")
        return
    if shown != wanted:
        pytest.fail(
            f"the {name} in {README.name} are not those of rocketmq_spark/core; write them anew: "
            f"{WRITE}=1 python -m pytest tests/core/{Path(__file__).name}",
            pytrace=False,
        )
