"""Every example runs, against real brokers; those that need Spark share one session."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
import pytest

from rocketmq_spark.client import Client, Message

from ..spark.queries import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / example), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_exactly_once(name_server: str) -> None:
    done = run("exactly_once.py", ROCKETMQ_SPARK_NAMESRV=name_server)
    assert done.returncode == 0, done.stderr
    assert "1000 orders placed, 2000 received" in done.stdout
    assert "1000 clean, 1000 of them different" in done.stdout


def test_the_readme_lists_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert files
    assert [name for name in sorted(files) if f"[{name}]({name})" not in text] == []


def test_orders(name_server: str) -> None:
    done = run("orders.py", ROCKETMQ_SPARK_NAMESRV=name_server)
    assert done.returncode == 0, done.stderr
    assert "5 express orders out of 20" in done.stdout


# --- the notebook -----------------------------------------------------------------------------


def code_cells() -> list[Any]:
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(cell: Any) -> tuple[str, list[str]]:
    """What a cell printed and displayed when the notebook was last executed."""
    printed, displayed = "", []
    for output in cell["outputs"]:
        assert output["output_type"] in ("stream", "display_data"), output
        if output["output_type"] == "stream":
            printed += "".join(output["text"])
        else:
            displayed.append("".join(output["data"]["text/html"]))
    return printed, displayed


def test_the_notebook_was_executed_in_order() -> None:
    counts = [cell["execution_count"] for cell in code_cells()]
    assert counts == list(range(1, len(counts) + 1))
    pictures = [picture for cell in code_cells() for picture in stored(cell)[1]]
    assert len(pictures) == 3
    assert all("<table" in picture for picture in pictures)


@pytest.mark.slow
def test_the_notebook_shows_what_is_stored_in_it(
    spark: SparkSession, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_SPARK_NAMESRV", cluster.name_server)
    shown: list[str] = []
    names: dict[str, Any] = {"display": lambda thing: shown.append(thing._repr_html_())}
    for cell in code_cells():
        shown.clear()
        with contextlib.redirect_stdout(io.StringIO()) as paper:
            exec("".join(cell["source"]), names)
        assert (paper.getvalue(), shown) == stored(cell), "".join(cell["source"])


# --- the job ----------------------------------------------------------------------------------


@pytest.fixture
def job() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / "daily_job.py")))


def orders(numbers: range) -> list[Message]:
    return [Message(f"order {n}", tags="ab"[n % 2], keys=f"k{n}") for n in numbers]


@pytest.mark.slow
def test_the_job_appends_what_is_new(
    job: SimpleNamespace,
    spark: SparkSession,
    client: Client,
    name_server: str,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders = ["--output", str(tmp_path / "rows"), "--checkpoint", str(tmp_path / "checkpoint")]
    chosen = job.arguments(
        ["--name-server", name_server, "--topic", topic, "--tags", "a", "--batch", "30", *folders]
    )
    for numbers in (range(100), range(100, 120), range(0)):
        if numbers:
            send(client, topic, orders(numbers))
        assert job.run(spark, chosen) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [f"{count} new messages of {topic}" for count in (50, 10, 0)]
    files = sorted((tmp_path / "rows").glob("day=*/*.parquet"))
    rows = [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]
    assert sorted(row["body"] for row in rows) == sorted(f"order {n}" for n in range(0, 120, 2))


@pytest.mark.slow
def test_the_job_tells_in_a_sentence_why_it_failed(
    job: SimpleNamespace,
    spark: SparkSession,
    name_server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders = ["--output", str(tmp_path / "rows"), "--checkpoint", str(tmp_path / "checkpoint")]
    for address, topic, said in (
        (name_server, "no_such_topic", "no_such_topic"),
        ("nonsense", "orders", "host:port"),
    ):
        chosen = job.arguments(["--name-server", address, "--topic", topic, *folders])
        assert job.run(spark, chosen) == 1
        told = capsys.readouterr().err
        assert told.startswith("daily_job: ")
        assert said in told
        assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--topic", "orders"], "--name-server"), (["--batch", "many"], "invalid int value: 'many'")],
)
def test_the_job_refuses_wrong_arguments(
    job: SimpleNamespace,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("ROCKETMQ_SPARK_NAMESRV", raising=False)
    with pytest.raises(SystemExit) as end:
        job.arguments(arguments)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


# --- Databricks -------------------------------------------------------------------------------


def databricks(widgets: dict[str, str]) -> Any:
    """As much of `dbutils` as the notebook uses: widgets, with what a user typed into them."""
    defaults: dict[str, str] = {}
    texts = SimpleNamespace(
        text=lambda name, default, label: defaults.setdefault(name, default),
        get=lambda name: widgets[name] if name in defaults else pytest.fail(f"no widget {name}"),
    )
    return SimpleNamespace(widgets=texts)


def test_the_databricks_notebook_is_one() -> None:
    text = (EXAMPLES / "databricks.py").read_text(encoding="utf-8")
    assert text.startswith("# Databricks notebook source\n")
    cells = text.split("\n# COMMAND ----------\n")
    assert any(cell.strip() == "# MAGIC %pip install rocketmq-spark" for cell in cells)
    for cell in cells:  # magic and Python never share one
        lines = [line for line in cell.splitlines()[cell.startswith("# Databricks") :] if line]
        assert len({line.startswith("# MAGIC") for line in lines}) == 1, cell


@pytest.mark.slow
def test_the_databricks_notebook_appends_to_a_table(
    spark: SparkSession,
    client: Client,
    name_server: str,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    spark.sql(f"CREATE DATABASE databricks LOCATION '{tmp_path / 'warehouse'}'")
    request.addfinalizer(lambda: spark.sql("DROP DATABASE databricks CASCADE"))
    widgets = {
        "name_server": name_server,
        "topic": topic,
        "table": "databricks.orders",
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    # What the notebook registers stays in a session of its own.
    names = {"spark": spark.newSession(), "dbutils": databricks(widgets)}
    for numbers, count in ((range(40), 40), (range(40, 50), 50)):
        send(client, topic, orders(numbers))
        runpy.run_path(str(EXAMPLES / "databricks.py"), names)
        assert f"{count} messages of {topic} in databricks.orders" in capsys.readouterr().out
    bodies = [row.body for row in spark.table("databricks.orders").collect()]
    assert sorted(bodies) == sorted(f"order {n}" for n in range(50))
