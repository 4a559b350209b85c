"""The Spark home of `pylog.spark_session`: its Python finds PySpark and Py4J compiled, and nothing else differs."""

import contextlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import py4j.version

from pylog.connector.spark import home, python_start
from tests.support.java import JavaUnavailable, java_command

DEADLINE_S = 120
PY4J = py4j.version.__version__
WHERE_FROM = """
import os, sys, tempfile
import pylog

tempfile.tempdir = sys.argv[1]
session = pylog.spark_session(
    "home",
    master="local[1]",
    config={"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"},
)

def where(_):
    import pyspark, py4j
    found = []
    for package in (pyspark, py4j):
        found += os.path.isfile(package.__spec__.cached), ".zip" in package.__file__, os.path.realpath(package.__file__)
    return found

paths = session.sparkContext.parallelize([0], 1).map(lambda _: sys.path).first()
print(*[entry for entry in paths if entry.endswith(".jar")])
print(*session.sparkContext.parallelize([0], 1).map(where).first(), os.environ.get("SPARK_HOME"), sep="\\n")
session.stop()
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """As pip leaves PySpark."""
    folder = tmp_path / "site-packages" / "pyspark"
    (folder / "python" / "lib").mkdir(parents=True)
    (folder / "python" / "pyspark").mkdir()
    for name in ("bin", "jars"):
        (folder / name).mkdir()
        (folder / name / f"of-{name}").touch()
    for name in (
        "__init__.py",
        "python/lib/pyspark.zip",
        f"python/lib/py4j-{PY4J}-src.zip",
        "python/lib/py4j-0-src.zip",
    ):
        (folder / name).touch()
    return folder


def test_the_packages_stand_where_their_zips_were_and_all_else_is_what_it_was(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = home._made(installed)
    assert (made / "python/lib/pyspark.zip/pyspark/__init__.py").resolve() == installed / "__init__.py"
    assert (made / f"python/lib/py4j-{PY4J}-src.zip/py4j/version.py").resolve() == Path(py4j.version.__file__).resolve()
    assert (made / "python/lib/py4j-0-src.zip").resolve() == installed / "python/lib/py4j-0-src.zip", "another version"
    assert (made / "jars/of-jars").resolve() == installed / "jars/of-jars"
    found = {one.name for one in (made / "python/lib/pyspark.zip").iterdir()}
    assert found == {"pyspark", "sitecustomize.py"}
    for folder in (".", "python", "python/lib"):
        assert {one.name for one in (made / folder).iterdir()} == {one.name for one in (installed / folder).iterdir()}


@pytest.mark.parametrize(
    ("master", "environment", "is_local"),
    [
        ("local", {}, True),
        ("local[2]", {}, True),
        ("local[*, 3]", {}, True),
        (None, {}, True),
        ("local-cluster[2,1,1024]", {}, False),
        ("yarn", {}, False),
        ("spark://somewhere:7077", {}, False),
        ("local[2]", {"SPARK_HOME": "/opt/spark"}, False),
        ("local[2]", {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, False),
        ("local[2]", {"SPARK_REMOTE": "sc://somewhere"}, False),
        (None, {"SPARK_CONF_DIR": "/etc/spark"}, False),
        (None, {"MASTER": "yarn"}, False),
        (None, {"MASTER": "local[4]"}, True),
    ],
)
def test_it_is_for_spark_on_this_machine_unless_somebody_chose_another(
    installed: Path, master: str | None, environment: dict[str, str], is_local: bool
) -> None:
    assert home._is_local(master, installed, environment) is is_local


def test_a_configuration_beside_pyspark_may_name_a_cluster(installed: Path) -> None:
    (installed / "conf").mkdir()
    assert not home._is_local(None, installed, {})
    assert home._is_local("local[2]", installed, {})


def test_a_spark_that_pyspark_prefers_to_its_own_is_left_to_it(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__file__", str(installed / "__init__.py"))
    assert home._installed() == installed
    (installed / "spark-distribution").mkdir()
    assert home._installed() is None


def test_where_it_cannot_be_made_spark_starts_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in home._CHOSEN_ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(home, "_homes", {})

    def refuse(installed: Path) -> Path:
        raise OSError("no links here")

    monkeypatch.setattr(home, "_made", refuse)
    with home.compiled_home("local[2]"):
        assert "SPARK_HOME" not in os.environ


def test_one_that_somebody_tidied_up_is_made_anew_and_a_forked_process_does_not_remove_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in home._CHOSEN_ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(home, "_homes", {})
    first = home._home("local[2]")
    assert first is not None
    assert home._home("local[2]") == first
    home._remove(first, os.getpid() + 1)
    assert (first / "bin").exists()
    home._remove(first, os.getpid())
    again = home._home("local[2]")
    assert again is not None
    assert again != first
    assert (again / "bin" / "spark-submit").is_file()


def test_a_spark_that_is_no_home_of_its_own_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with home.compiled_home("local[2]"):
        assert "SPARK_HOME" not in os.environ


def test_the_environment_is_as_it_was_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in home._CHOSEN_ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    with contextlib.suppress(RuntimeError), home.compiled_home("local[2]"):
        assert Path(os.environ["SPARK_HOME"], "bin", "spark-submit").is_file()
        raise RuntimeError("the JVM does not start")
    assert "SPARK_HOME" not in os.environ


@pytest.fixture
def python_path(tmp_path: Path) -> list[str]:
    """As Spark sets it: its packages, its jar, what the user has."""
    jar = tmp_path / "jars" / "spark-core_2.13-4.2.0.jar"
    packages, of_user = tmp_path / "pyspark.zip", tmp_path / "user"
    for folder in (jar.parent, packages, of_user):
        folder.mkdir()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("of_jar.py", "")
    (packages / "sitecustomize.py").symlink_to(python_start.__file__)
    return [str(packages), str(jar), str(of_user)]


def _told_by_python(python_path: list[str], code: str) -> list[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(python_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert run.stderr == ""
    return run.stdout.splitlines()


def test_python_does_not_look_into_sparks_jar(python_path: list[str]) -> None:
    code = "import sys, importlib.util as u; print(*sys.path, u.find_spec('of_jar'), sep='\\n')"
    *path, of_jar = _told_by_python(python_path, code)
    packages, jar, of_user = python_path
    assert path[1:3] == [packages, of_user]
    assert jar not in path
    assert of_jar == "None"


def test_what_the_user_has_python_do_first_is_done(python_path: list[str]) -> None:
    Path(python_path[-1], "sitecustomize.py").write_text("import sys; print(sys.path[0], __name__, __file__)")
    (told,) = _told_by_python(python_path, "")
    assert told == f"{python_path[0]} sitecustomize {python_path[-1]}/sitecustomize.py"


@pytest.mark.parametrize("second", ["another home", "the same home, by another name"])
def test_two_homes_on_the_path_do_not_run_each_other(python_path: list[str], tmp_path: Path, second: str) -> None:
    packages, *_, of_user = python_path
    other = tmp_path / "other.zip"
    if second == "another home":
        other.mkdir()
        (other / "sitecustomize.py").symlink_to(python_start.__file__)
    else:
        other.symlink_to(packages)
    Path(of_user, "sitecustomize.py").write_text("print('once')")
    assert _told_by_python([packages, str(other), of_user], "") == ["once"]


@pytest.mark.connector
def test_a_worker_imports_the_package_compiled(tmp_path: Path) -> None:
    try:
        java_command()
    except JavaUnavailable as error:
        pytest.skip(str(error))
    import pyspark

    dropped = (*home._CHOSEN_ELSEWHERE, "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    run = subprocess.run(
        [sys.executable, "-c", WHERE_FROM, str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    jars, *found, spark_home = run.stdout.splitlines()[-8:]
    assert jars == ""
    for package, (is_compiled, is_of_the_home, path) in zip((pyspark, py4j), (found[:3], found[3:]), strict=True):
        assert is_compiled == "True"
        assert is_of_the_home == "True"
        assert Path(path) == Path(str(package.__file__)).resolve()
    assert spark_home == "None"
    assert not list(tmp_path.glob("pylog-spark-home-*")), "it goes with the process"
