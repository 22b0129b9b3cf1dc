"""Who may import whom: imports point down, and each room keeps to its own kind of work."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "rocketmq_spark"

# A room may import from rooms of a lower rank; rooms of one rank do not know each other.
RANKS = {
    "errors": 0,
    "core": 1,
    "wire": 2,
    "client": 3,
    "spark": 4,
    "local_cluster": 4,
    "cli": 5,
    "__main__": 6,
}

# The demo is a user of Spark like any other, not a part of the source.
DEMO = "rocketmq_spark.cli.demo.query"

CLOCKS_AND_SOCKETS = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "select",
    "selectors",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
}
ARROW = {"numpy", "pyarrow"}
# Of wire, these make columns. Compression loads Arrow's codecs when a message needs them.
COLUMN_MAKERS = (
    "decode",
    "encode",
    "columns",
    "records",
    "properties",
    "property_table",
    "like_properties",
    "spans",
    "walk",
)


@dataclass(frozen=True)
class Import:
    """One imported module. `lazy` when it is inside a function."""

    target: str
    line: int
    lazy: bool

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]


@dataclass(frozen=True)
class Module:
    name: str
    imports: tuple[Import, ...]

    @property
    def room(self) -> str:
        """`wire` of `rocketmq_spark.wire.frame`; empty for the package itself."""
        return room_of(self.name)

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]


def room_of(name: str) -> str:
    return [*name.split("."), ""][1]


def imports_of(source: str, name: str, is_package: bool = False) -> Iterator[Import]:
    """Every import of a module's source, wherever it stands, relative ones spelled out."""
    tree = ast.parse(source)
    lazy = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
    }
    parents = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in lazy)
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from rocketmq_spark import wire` imports a room, so the name counts too.
                yield Import(f"{base}.{alias.name}", node.lineno, id(node) in lazy)


def load(root: Path) -> Iterator[Module]:
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        yield Module(name, tuple(imports_of(path.read_text("utf-8"), name, is_package)))


MODULES = list(load(ROOT))


def complaints(module: Module) -> list[str]:
    """What is wrong with a module's imports."""
    found = []

    def complain(imported: Import, why: str) -> None:
        found.append(f"{module.name} line {imported.line} imports {imported.target}: {why}")

    for imported in module.imports:
        if imported.top == PACKAGE:
            room = room_of(imported.target)
            if not module.room or room == module.room or room not in RANKS:
                continue
            if RANKS[room] >= RANKS[module.room]:
                complain(imported, "imports only point down")
            continue
        if module.room in ("core", "errors") and imported.top not in sys.stdlib_module_names:
            complain(imported, "only the standard library")
        if module.room in ("core", "errors", "wire") and imported.top in CLOCKS_AND_SOCKETS:
            complain(imported, "no clocks, sockets or threads; they arrive as arguments")
        if imported.top == "pyspark" and module.room != "spark" and module.name != DEMO:
            complain(imported, "only spark knows pyspark")
        if imported.top in ARROW and module.room == "wire":
            lazily = module.leaf == "compression" and imported.lazy
            if not lazily and not module.leaf.startswith(COLUMN_MAKERS):
                complain(imported, "only the makers of columns know Arrow and numpy")
    return found


def test_all_rooms_are_known() -> None:
    rooms = {module.room for module in MODULES} - {""}
    assert rooms <= set(RANKS), f"give {rooms - set(RANKS)} a rank"
    assert {"errors", "core", "wire", "client"} <= rooms


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_imports_point_down(module: Module) -> None:
    assert complaints(module) == []


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("rocketmq_spark.wire.x", "import socket", "no clocks"),
        ("rocketmq_spark.wire.x", "from time import monotonic", "no clocks"),
        ("rocketmq_spark.core.x", "import threading", "no clocks"),
        ("rocketmq_spark.core.x", "import numpy as np", "standard library"),
        ("rocketmq_spark.core.x", "def f():\n    import pyarrow", "standard library"),
        ("rocketmq_spark.core.x", "from rocketmq_spark.wire.frame import Frame", "point down"),
        ("rocketmq_spark.core.x", "from rocketmq_spark import wire", "point down"),
        ("rocketmq_spark.core.x", "from ..wire import frame", "point down"),
        ("rocketmq_spark.errors", "from .core import model", "point down"),
        ("rocketmq_spark.wire.x", "import rocketmq_spark.client", "point down"),
        ("rocketmq_spark.client.x", "if 1:\n    import rocketmq_spark.cli", "point down"),
        ("rocketmq_spark.spark.x", "import rocketmq_spark.local_cluster", "point down"),
        ("rocketmq_spark.local_cluster.x", "import rocketmq_spark.spark", "point down"),
        ("rocketmq_spark.client.x", "import pyspark.sql", "only spark"),
        ("rocketmq_spark.cli.demo.story", "import pyspark.sql", "only spark"),
        ("rocketmq_spark.wire.frame", "import pyarrow.compute", "makers of columns"),
        ("rocketmq_spark.wire.compression", "import pyarrow", "makers of columns"),
    ],
)
def test_what_is_wrong_is_found(name: str, source: str, why: str) -> None:
    [complaint] = complaints(Module(name, tuple(imports_of(source, name))))
    assert why in complaint


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("rocketmq_spark.core.x", "from .model import MessageQueue\nimport json"),
        ("rocketmq_spark.core.x", "from rocketmq_spark.errors import UsageError"),
        ("rocketmq_spark.wire.decode", "import pyarrow as pa"),
        ("rocketmq_spark.wire.compression", "def f():\n    import pyarrow"),
        ("rocketmq_spark.client.x", "import socket, time\nfrom ..wire import frame"),
        ("rocketmq_spark.cli.x", "from rocketmq_spark import __version__"),
        ("rocketmq_spark.spark.x", "import pyspark.sql\nimport rocketmq_spark.client"),
    ],
)
def test_what_is_right_is_let_alone(name: str, source: str) -> None:
    assert complaints(Module(name, tuple(imports_of(source, name)))) == []


HEAVY = ("pyspark", "pandas", "pyarrow", "numpy", "click", "rich")


def loaded_by(*names: str) -> set[str]:
    """Which heavy packages are in memory after these imports, in an interpreter of their own."""
    code = "\n".join(
        [f"import {name}" for name in names]
        + ["import sys", f"print(*[name for name in {HEAVY!r} if name in sys.modules])"]
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return set(run.stdout.split())


def test_the_package_loads_nothing_heavy() -> None:
    assert loaded_by(PACKAGE) == set()


def test_core_and_the_plain_half_of_wire_load_nothing_heavy() -> None:
    plain = [
        module.name
        for module in MODULES
        if module.room in ("errors", "core")
        or (module.room == "wire" and not module.leaf.startswith(COLUMN_MAKERS))
    ]
    assert len(plain) > 8
    assert loaded_by(*plain) == set()


def test_the_client_needs_arrow_but_not_spark() -> None:
    assert loaded_by(f"{PACKAGE}.client") <= {"pyarrow", "numpy", "pandas"}


def test_public_names_are_found_when_they_are_used() -> None:
    import rocketmq_spark

    assert set(rocketmq_spark.__all__) == set(dir(rocketmq_spark))
    for name in rocketmq_spark.__all__:
        assert getattr(rocketmq_spark, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = rocketmq_spark.nonsense
