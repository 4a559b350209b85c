"""What users install: the sdist and the wheel hold real files where the source tree has links, and the wheel works
in an environment that has its declared dependencies and nothing else."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import pylog
from tests.support.probe import answers

REPOSITORY = Path(__file__).resolve().parents[1]
BUILT_FROM = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "src", "storage", "broker_lite", "connector")
FOLDERS = ("storage", "broker_lite", "connector")

# Spark's side needs an extra, and pytest loads its plugin; everything else imports with the base dependencies alone.
IMPORT_ALL = """
import importlib, pkgutil, pylog
assert "site-packages" in pylog.__file__, pylog.__file__
for module in pkgutil.walk_packages(pylog.__path__, "pylog."):
    others = ("pylog.connector.spark", "pylog.demo", "pylog.pytest_plugin")
    if not module.name.startswith(others) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
RUN_BROKER = """
import sys, pylog
with pylog.Broker() as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as a clone has it, without what tools left in it."""
    tree = tmp_path_factory.mktemp("source")
    for name in (*BUILT_FROM, "tests"):
        if (REPOSITORY / name).is_dir():
            leftovers = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
            shutil.copytree(REPOSITORY / name, tree / name, symlinks=True, ignore=leftovers)
        else:
            shutil.copy(REPOSITORY / name, tree / name)
    return tree


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that `build` makes from the sdist (not from the tree)."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source))
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a virtual environment with the wheel and its declared dependencies."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    shown = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    link_dependencies("pylog", Path(shown.strip()))
    return python.parent


def link_dependencies(root: str, site_packages: Path) -> None:
    """What `root` needs, and what that needs, out of our own environment: no download, and not one more. `root` too,
    unless it is pylog."""
    ours = Path(sysconfig.get_path("purelib"))
    wanted, seen = [root], set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        requirements = [line for line in distribution.requires or [] if "extra ==" not in line]
        wanted += [re.match(r"[\w.-]+", line)[0] for line in requirements if applies(line)]  # type: ignore[index]
        if name != "pylog":
            tops = {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
            for top in tops:
                (site_packages / top).symlink_to(ours / top)


def applies(requirement: str) -> bool:
    from packaging.requirements import Requirement

    marker = Requirement(requirement).marker
    return marker is None or marker.evaluate()


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python_files(tree: Path) -> set[str]:
    """Every Python file of the package, seen through the links, as its path inside `pylog`."""
    package = tree / "src" / "pylog"
    roots = [package, *(package / folder for folder in FOLDERS)]
    return {str(path.relative_to(package)) for root in roots for path in root.rglob("*.py")}


def test_the_sdist_holds_real_files_of_every_module_and_no_tests(source: Path, built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        members = archive.getmembers()
    root = f"pylog-{pylog.__version__}/"
    names = {member.name.removeprefix(root) for member in members}
    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert {f"src/pylog/{name}" for name in python_files(source)} <= names
    assert {"src/pylog/py.typed", "LICENSE", "README.md"} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_the_wheel_holds_every_module_and_nothing_beside_the_package(source: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"pylog/{name}" for name in python_files(source)} | {"pylog/py.typed"} <= names
    assert {name.split("/")[0] for name in names} == {"pylog", f"pylog-{pylog.__version__}.dist-info"}


def test_the_tree_builds_the_same_wheel_as_the_sdist(source: Path, wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(source))
    contents = [
        {entry.filename: entry.CRC for entry in zipfile.ZipFile(file).infolist()}
        for file in (wheel, tmp_path / wheel.name)
    ]
    assert contents[0] == contents[1]


def test_the_installed_command_says_its_version(installed: Path) -> None:
    assert run(str(installed / "pylog"), "--version") == f"pylog {pylog.__version__}\n"


def test_the_base_dependencies_are_all_that_is_needed_without_spark(installed: Path) -> None:
    run(str(installed / "python"), "-c", IMPORT_ALL)


def test_a_broker_runs_from_the_installed_package(installed: Path) -> None:
    with subprocess.Popen(
        [installed / "python", "-c", RUN_BROKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    ) as process:
        assert process.stdout is not None
        assert answers(process.stdout.readline().strip(), timeout_s=10)
        process.communicate("")
    assert process.returncode == 0


def test_pytest_finds_the_fixtures_of_the_installed_package(installed: Path, tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    link_dependencies("pytest", modules)
    (tmp_path / "test_it.py").write_text(
        "def test_it(pylog_broker, fresh_pylog_broker):\n"
        "    import pylog\n"
        "    assert 'site-packages' in pylog.__file__\n"
        "    assert pylog_broker.create_topic() != pylog_broker.create_topic()\n"
        "    assert pylog_broker.bootstrap_servers != fresh_pylog_broker.bootstrap_servers\n"
    )
    done = subprocess.run(
        [installed / "python", "-m", "pytest", "-q", "-W", "error", tmp_path],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(modules)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
