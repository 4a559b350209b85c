"""Imports point one way, wherever they stand: at the top of a file, in a function, under TYPE_CHECKING.

Two tables say it all: what of pylog each package may import, and which foreign modules it must not. The most specific
row that fits a module counts, alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = ("storage", "broker_lite", "connector")

RECORD_FORMAT = (
    "pylog.storage.batch",
    "pylog.storage.checksum",
    "pylog.storage.records",
    "pylog.storage.codecs",
    "pylog.storage.errors",
    "pylog.storage.kernels",
)
PROTOCOL = "pylog.broker_lite.protocol"
VERSION = "pylog.__version__"  # no module: what everybody who tells it may import of the public face

MAY_IMPORT = {
    "pylog.storage": ("pylog.storage",),
    "pylog.broker_lite.protocol": (PROTOCOL, "pylog.storage"),
    "pylog.broker_lite": ("pylog.broker_lite", "pylog.storage", VERSION),
    "pylog.broker_lite.machines": ("pylog.broker_lite.machines", "pylog.broker_lite.errors", PROTOCOL),
    "pylog.connector.client": ("pylog.connector.client", PROTOCOL, *RECORD_FORMAT, VERSION),
    "pylog.connector.columnar": ("pylog.connector.columnar", PROTOCOL, *RECORD_FORMAT),
    "pylog.connector": ("pylog.connector", PROTOCOL, *RECORD_FORMAT),
    "pylog": ("pylog",),  # the public face, and the demo, may use everything
}

HEAVY = ("numba", "numpy", "pyarrow", "pyspark", "delta")
NO_IO = ("asyncio", "socket", "selectors", "subprocess", "threading", "time")
MUST_NOT_IMPORT = {
    "pylog.storage": (*HEAVY, "asyncio", "socket"),
    "pylog.storage.kernels": ("pyarrow", "pyspark", "delta", "asyncio", "socket"),
    "pylog.broker_lite": HEAVY,
    "pylog.broker_lite.protocol": (*HEAVY, *NO_IO),
    "pylog.broker_lite.machines": (*HEAVY, *NO_IO),
    "pylog.connector.client": HEAVY,
    "pylog.connector.columnar": ("pyspark", "delta", "socket", "asyncio"),
    "pylog.connector": ("delta",),
    "pylog": (),
}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    """`storage/batch.py` is pylog.storage.batch; `src/pylog/cli.py` is pylog.cli."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else ("pylog", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = REPOSITORY / "src" / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(source: str) -> Iterator[tuple[int, str]]:
    """(line, module) of everything that the source imports; a relative import yields its dots."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(level=level) if level > 0:
                yield node.lineno, "." * level
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    inner = f"{module}.{alias.name}"
                    is_named = module.startswith("pylog") and (is_module(inner) or inner == VERSION)
                    yield node.lineno, inner if is_named else module
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]) if ast.unparse(function) in (
                "importlib.import_module",
                "import_module",
                "__import__",
            ):
                yield node.lineno, module


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def row(table: dict[str, tuple[str, ...]], module: str) -> tuple[str, ...]:
    return table[max((package for package in table if within(module, package)), key=len)]


def complaints(module: str, source: str) -> list[str]:
    found = []
    for line, imported in imports(source):
        if imported.startswith("."):
            found.append(f"line {line}: a relative import; write pylog.…")
        elif imported.split(".")[0] in (*FOLDERS, "src"):
            found.append(f"line {line}: import pylog.{imported}, not {imported}: two copies of its classes would load")
        elif within(imported, "pylog"):
            if not any(within(imported, package) for package in row(MAY_IMPORT, module)):
                found.append(f"line {line}: {module} must not import {imported}")
        elif imported.split(".")[0] in row(MUST_NOT_IMPORT, module):
            found.append(f"line {line}: {module} must not import {imported}")
    return found


def test_every_import_of_the_package_points_the_allowed_way() -> None:
    files = python_files(*FOLDERS, "src")
    assert len(files) > 10
    wrong = {
        str(path.relative_to(REPOSITORY)): found
        for path in files
        if not any(path.is_relative_to(REPOSITORY / "src/pylog" / folder) for folder in FOLDERS)  # seen without links
        if (found := complaints(module_of(path), path.read_text()))
    }
    assert not wrong


def test_nobody_outside_imports_a_folder_by_its_bare_name() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{line}: {imported}"
        for path in python_files("tests", "benchmarks", "notebooks")
        for line, imported in imports(path.read_text())
        if imported.split(".")[0] in (*FOLDERS, "src")
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("module", "source"),
    [
        pytest.param("pylog.storage.log", "import pylog.broker_lite.config", id="storage knows no broker"),
        pytest.param("pylog.storage.log", "from pylog import broker_lite", id="a package named after `from pylog`"),
        pytest.param("pylog.storage.log", "def f():\n    import numpy.core", id="inside a function"),
        pytest.param("pylog.storage.log", "if TYPE_CHECKING:\n    import pyarrow", id="for types only"),
        pytest.param("pylog.storage.log", "import importlib\nimportlib.import_module('numba')", id="by name"),
        pytest.param("pylog.storage.batch", "from . import codecs", id="relative"),
        pytest.param("pylog.storage.batch", "from storage import codecs", id="by the bare folder name"),
        pytest.param("pylog.broker_lite.protocol.wire", "import pylog.broker_lite.server", id="the protocol is a leaf"),
        pytest.param("pylog.broker_lite.machines.offsets", "import asyncio", id="a machine does no I/O"),
        pytest.param("pylog.broker_lite.server", "import pylog.connector.client", id="the broker knows no connector"),
        pytest.param("pylog.broker_lite.server", "from pylog import Broker", id="nor the public face"),
        pytest.param("pylog.storage.log", "from pylog import __version__", id="storage tells no version"),
        pytest.param(
            "pylog.connector.spark.source", "from pylog.broker_lite import config", id="not the broker's rest"
        ),
        pytest.param("pylog.connector.spark.source", "from pylog.storage import log", id="not the log"),
        pytest.param("pylog.connector.client.pool", "import pylog.connector.columnar", id="the client knows no Arrow"),
        pytest.param("pylog.connector.columnar.decode", "import pylog.connector.spark", id="never back from Spark"),
        pytest.param("pylog.connector.columnar.decode", "from pyspark.sql import Row", id="no Spark in the columns"),
    ],
)
def test_a_wrong_import_is_noticed(module: str, source: str) -> None:
    assert complaints(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        pytest.param("pylog.storage.log", "from pylog.storage.batch import walk", id="its own package"),
        pytest.param("pylog.storage.kernels.decode", "import numba, numpy", id="kernels are numba"),
        pytest.param("pylog.broker_lite.server", "from pylog.storage import log", id="broker to storage"),
        pytest.param("pylog.connector.client.pool", "from pylog import __version__", id="the version"),
        pytest.param(
            "pylog.connector.client.pool", "from pylog.broker_lite.protocol import wire", id="to the protocol"
        ),
        pytest.param(
            "pylog.connector.spark.source", "from pylog.connector.columnar import decode", id="down from Spark"
        ),
        pytest.param(
            "pylog.connector.columnar.decode", "from pylog.storage import batch as b, codecs", id="the format"
        ),
    ],
)
def test_a_right_import_passes(module: str, source: str) -> None:
    assert complaints(module, source) == []
