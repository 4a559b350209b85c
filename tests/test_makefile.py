"""`make` on a machine where something is missing: one message that says what to install, and nothing done before it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
OLD_JAVA = """#!/bin/sh
echo 'openjdk version "11.0.2" 2019-01-15' >&2
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    return tmp_path


def make(clone: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "JAVA"))}
    return subprocess.run(
        ["make", target], cwd=clone, env=base | environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("target", ["demo", "test", "bench", "test-kafka"])
def test_without_java_it_says_what_to_install_before_anything_else(clone: Path, target: str) -> None:
    done = make(clone, target, JAVA_HOME=str(clone / "nowhere"))
    assert done.returncode != 0
    assert "needs Java 17 or newer" in done.stderr
    assert not (clone / ".venv").exists()


def test_an_old_java_is_named_with_its_version(clone: Path) -> None:
    java = clone / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(OLD_JAVA)
    java.chmod(0o755)
    done = make(clone, "test", JAVA_HOME=str(clone / "old"))
    assert done.returncode != 0
    assert "is version 11" in done.stderr


def test_without_a_fitting_python_it_says_what_to_install(clone: Path) -> None:
    tools = clone / "tools"
    tools.mkdir()
    for tool in ("make", "sh", "sed", "head", "touch"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    done = make(clone, "lint", PATH=str(tools))
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert not (clone / ".venv").exists()


def test_every_target_is_in_the_list_that_plain_make_prints(clone: Path) -> None:
    shown = make(clone, "help").stdout
    for target in ("demo", "test", "lint", "bench", "faults", "test-kafka", "clean"):
        assert f"make {target} " in shown
