"""A Spark home in which Python processes find PySpark compiled, so that a streaming query starts a second sooner.

Spark puts `pyspark.zip` and Py4J's zip, of `python/lib` in its home, first on the path of every Python process that it
starts. They hold sources, and Python keeps nothing compiled of a zip: a process that is not forked from another
compiles PySpark before it does anything. The planner of a streaming query is such a process. Here the installed
packages, compiled, stand where the zips would, and beside them what Python is to do first (`python_start`); everything
else is linked to.

For Spark on this machine only: a cluster is sent the zips themselves.
"""

import atexit
import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

from pylog.connector.spark import python_start

_PYTHON, _LIBRARIES, _ZIP = "python", "lib", "pyspark.zip"
_CHOSEN_ELSEWHERE = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")  # and for a reason
_lock = threading.Lock()
_homes: dict[Path, Path] = {}  # by PySpark's folder


@contextlib.contextmanager
def compiled_home(master: str | None) -> Iterator[None]:
    """A JVM that is started meanwhile has this home, if `master` is local and PySpark came by pip."""
    with _lock:
        home = _home(master)
        if home is None:
            yield
            return
        os.environ["SPARK_HOME"] = str(home)
        try:
            yield
        finally:
            os.environ.pop("SPARK_HOME", None)


def _home(master: str | None) -> Path | None:
    installed = _installed()
    if installed is None or not _is_local(master, installed, os.environ):
        return None
    made = _homes.get(installed)
    if made is None or not (made / "bin").exists():  # somebody tidied up
        try:
            made = _homes[installed] = _made(installed)
        except OSError:  # where there are no links: Spark starts all the same
            return None
        atexit.register(_remove, made, os.getpid())
    return made


def _installed() -> Path | None:
    """PySpark's folder, where it is a Spark home of its own."""
    import pyspark

    folder = Path(pyspark.__file__).parent
    is_home = (folder / _PYTHON / _LIBRARIES / _ZIP).is_file() and (folder / "bin").is_dir()
    return folder if is_home and not (folder / "spark-distribution").exists() else None  # which PySpark would prefer


def _is_local(master: str | None, installed: Path, environment: Mapping[str, str]) -> bool:
    if any(name in environment for name in _CHOSEN_ELSEWHERE):
        return False
    master = master or environment.get("MASTER")
    if master is None:
        return not (installed / "conf").exists()  # which may name one
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _made(installed: Path) -> Path:
    import py4j
    from py4j.version import __version__ as py4j_version

    packages = {_ZIP: installed, f"py4j-{py4j_version}-src.zip": Path(py4j.__file__).parent}
    home = Path(tempfile.mkdtemp(prefix="pylog-spark-home-"))
    _link(installed, home, but={_PYTHON})
    _link(installed / _PYTHON, home / _PYTHON, but={_LIBRARIES})
    _link(installed / _PYTHON / _LIBRARIES, home / _PYTHON / _LIBRARIES, but=packages)
    for zip_name, package in packages.items():
        if (installed / _PYTHON / _LIBRARIES / zip_name).exists():  # Py4J of another version stays as it is
            (home / _PYTHON / _LIBRARIES / zip_name).mkdir()
            (home / _PYTHON / _LIBRARIES / zip_name / package.name).symlink_to(package)
    (home / _PYTHON / _LIBRARIES / _ZIP / "sitecustomize.py").symlink_to(python_start.__file__)
    return home


def _link(folder: Path, at: Path, but: Container[str]) -> None:
    at.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        if entry.name not in but:
            (at / entry.name).symlink_to(entry)


def _remove(home: Path, maker: int) -> None:
    if os.getpid() == maker:  # not a process that was forked from it
        shutil.rmtree(home, ignore_errors=True)
