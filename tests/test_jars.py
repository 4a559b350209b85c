"""Fetched jars are all there or not there at all. Ivy is played by a script in the place of java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MODULES = ("spark-sql-kafka-0-10_2.13-4.2.0", "kafka-clients-3.9.2", "commons-pool2-2.12.1")
TOKEN_PROVIDER = "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1"
FETCH = "from tests.support.jars import spark_kafka_jars; print(*[path.stem for path in spark_kafka_jars()])"
JAVA = f"""#!{sys.executable}
import os, pathlib, sys
if "-version" in sys.argv:
    sys.exit('openjdk version "17.0.1"')
folder = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
folder.mkdir()
for name in os.environ["FAKE_JARS"].split():
    (folder / (name + ".jar")).touch()
if os.environ["FAKE_TROUBLE"]:
    print(":: ", os.environ["FAKE_TROUBLE"], ": not found")
    sys.exit(1)
"""


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    return java.parents[1]


def fetch(java_home: Path, jars: tuple[str, ...], trouble: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"JAVA_HOME": str(java_home), "FAKE_JARS": " ".join(jars), "FAKE_TROUBLE": trouble}
    environment["PYLOG_JARS_DIR"] = str(java_home.parent / "jars")
    return subprocess.run(
        [sys.executable, "-c", FETCH],
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_whole_set_is_kept_and_not_fetched_again(java_home: Path) -> None:
    whole = fetch(java_home, (*MODULES, TOKEN_PROVIDER))
    assert set(whole.stdout.split()) == {*MODULES, TOKEN_PROVIDER}
    again = fetch(java_home, (), trouble="everything")
    assert again.stdout == whole.stdout


@pytest.mark.parametrize(
    ("jars", "trouble", "words"),
    [
        pytest.param(MODULES, "token-provider", "token-provider : not found", id="Ivy fails after some jars"),
        pytest.param(MODULES, "", f"the repository has no {TOKEN_PROVIDER}.jar", id="Ivy is content without a jar"),
    ],
)
def test_half_a_set_is_an_error_with_its_reason_and_leaves_nothing(
    java_home: Path, jars: tuple[str, ...], trouble: str, words: str
) -> None:
    half = fetch(java_home, jars, trouble)
    assert half.returncode != 0
    assert words in half.stderr
    assert list((java_home.parent / "jars").iterdir()) == []
    assert fetch(java_home, (*MODULES, TOKEN_PROVIDER)).returncode == 0
