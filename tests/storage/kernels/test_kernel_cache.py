"""Compiled once per machine: each case is a process of its own, as a Spark worker is."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import pylog.storage.kernels as kernels

# loads one module of kernels, uses one of them, and says where they came from
REPORT = """
import json, sys
import numba
before = numba.config.CACHE_DIR, numba.config.DISABLE_JIT
from pylog.storage.kernels import cache, partition
import numpy as np
ids = np.full(1, -1, np.int32)
partition.partition_by_key(np.zeros(1, np.int64), np.zeros(1, np.int32), 100, ids)
kernels = [partition.partition_by_key, partition.partition_sticky]
directory = cache.cache_directory()
json.dump({
    "directory": str(directory) if directory else None,
    "hits": sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels),
    "misses": sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels),
    "partition": int(ids[0]),
    "restored": (numba.config.CACHE_DIR, numba.config.DISABLE_JIT) == before,
}, sys.stdout)
"""
PARTITION_OF_EMPTY_KEY = 275646681 % 100


def start(tmp_path: Path, **environment: str) -> subprocess.Popen[bytes]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")}
    (tmp_path / "tmp").mkdir(exist_ok=True)
    kept |= {"TMPDIR": str(tmp_path / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    return subprocess.Popen([sys.executable, "-c", REPORT], env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> dict[str, object]:
    out, err = process.communicate()
    assert process.returncode == 0, err.decode()
    report: dict[str, object] = json.loads(out)
    assert report["partition"] == PARTITION_OF_EMPTY_KEY
    assert report["restored"], "the user's own numba code must not see our settings"
    return report


def run(tmp_path: Path, **environment: str) -> dict[str, object]:
    return finish(start(tmp_path, **environment))


def test_the_second_process_loads_what_the_first_compiled(tmp_path: Path) -> None:
    first = run(tmp_path, PYLOG_CACHE_DIR=str(tmp_path / "own"))
    second = run(tmp_path, PYLOG_CACHE_DIR=str(tmp_path / "own"))
    assert (first["hits"], second["misses"]) == (0, 0)
    assert first["misses"] == second["hits"] == 2


def test_processes_that_compile_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    for process in [start(tmp_path, PYLOG_CACHE_DIR=str(tmp_path)) for _ in range(3)]:
        finish(process)
    assert run(tmp_path, PYLOG_CACHE_DIR=str(tmp_path))["misses"] == 0


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        pytest.param(
            ["PYLOG_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"], "PYLOG_CACHE_DIR/kernels", id="ours"
        ),
        pytest.param(["NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"], "NUMBA_CACHE_DIR/pylog-kernels", id="numba's"),
        pytest.param(["XDG_CACHE_HOME", "HOME"], "XDG_CACHE_HOME/pylog/kernels", id="XDG"),
        pytest.param(["HOME"], "HOME/.cache/pylog/kernels", id="home"),
        pytest.param([], f"tmp/pylog-{os.getuid()}/kernels", id="nothing set"),
    ],
)
def test_the_cache_is_where_the_user_says(tmp_path: Path, variables: list[str], place: str) -> None:
    report = run(tmp_path, **{name: str(tmp_path / name) for name in variables})
    directory = Path(str(report["directory"]))
    assert directory.parent == tmp_path / place
    assert any(directory.rglob("*.nbi"))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_that_others_can_write_to_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "own" / "kernels").mkdir(parents=True)
    (tmp_path / "own" / "kernels").chmod(0o777)
    report = run(tmp_path, PYLOG_CACHE_DIR=str(tmp_path / "own"), HOME=str(tmp_path))
    assert str(report["directory"]).startswith(str(tmp_path / ".cache"))
    assert not any((tmp_path / "own").rglob("*.nbi"))


def test_a_temporary_directory_that_somebody_else_made_first_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tmp" / f"pylog-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert run(tmp_path)["directory"] is None
    assert not any((tmp_path / "elsewhere").rglob("*.nbi"))


def test_kernels_work_where_nothing_can_be_cached(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / f"pylog-{os.getuid()}").write_text("not a directory either")
    report = run(tmp_path, HOME=str(tmp_path / "file"), PYLOG_CACHE_DIR=str(tmp_path / "file"))
    assert report["directory"] is None


def test_files_that_a_power_cut_left_empty_do_not_stop_anybody(tmp_path: Path) -> None:
    directory = Path(str(run(tmp_path, HOME=str(tmp_path))["directory"]))
    for file in directory.rglob("*.nb?"):
        file.write_bytes(b"")
    assert run(tmp_path, HOME=str(tmp_path))["misses"] == 2
    assert run(tmp_path, HOME=str(tmp_path))["hits"] == 2


def test_numba_switched_off_for_the_user_is_not_switched_off_for_kernels(tmp_path: Path) -> None:
    assert run(tmp_path, HOME=str(tmp_path), NUMBA_DISABLE_JIT="1")["misses"] == 2


def test_a_read_only_package_and_no_home(tmp_path: Path) -> None:
    """As on a cluster: nothing of the installation can be written, and there is no HOME."""
    package = tmp_path / "site" / "pylog"
    source = Path(str(kernels.__file__)).parents[1]
    (package / "storage").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    shutil.copytree(source, package / "storage", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*package.rglob("*"), package]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        first = run(tmp_path, PYTHONPATH=str(tmp_path / "site"))
        second = run(tmp_path, PYTHONPATH=str(tmp_path / "site"))
        assert (first["hits"], second["misses"]) == (0, 0)
        assert not list(package.rglob("*.nb?"))
    finally:
        for path in [package, *package.rglob("*")]:
            path.chmod(0o755)


def test_a_changed_helper_makes_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pylog.storage.kernels import cache

    (tmp_path / "cache.py").write_text("one")
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "cache.py"))
    before = cache._sources_digest()
    (tmp_path / "memory.py").write_text("two")
    assert cache._sources_digest() != before
