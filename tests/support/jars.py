"""Jars from the Maven repository, fetched once by the Ivy that PySpark ships: neither Maven nor a host name is needed.

A set of jars is a folder that appears by one rename when it is complete, so an interrupted or concurrent download
leaves no half set behind. The folder's name carries a digest of what was asked for: change a version and a new set
is fetched. `python -m tests.support.jars` fetches all of them."""

import argparse
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.java import JavaUnavailable, java_command

REPOSITORY = Path(__file__).resolve().parents[2]
JARS_DIR = Path(os.environ.get("PYLOG_JARS_DIR") or REPOSITORY / ".cache" / "jars").absolute()


class JarsUnavailable(Exception):
    """The jars are not here and could not be fetched; the message says why."""


@dataclass(frozen=True)
class JarSet:
    name: str
    modules: tuple[tuple[str, str, str], ...]  # organisation, name, version
    transitive: bool
    seconds_max: int  # a few times what it takes, and less than a test may take
    excluded: tuple[tuple[str, str], ...] = ()  # organisation, name

    def ivy_file(self) -> str:
        dependencies = [
            f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default->default"'
            f' transitive="{str(self.transitive).lower()}"/>'
            for organisation, name, version in self.modules
        ]
        excludes = [f'<exclude org="{organisation}" module="{name}"/>' for organisation, name in self.excluded]
        return (
            '<ivy-module version="2.0"><info organisation="pylog" module="jars"/>'
            '<configurations><conf name="default"/></configurations>'
            f"<dependencies>{''.join(dependencies + excludes)}</dependencies></ivy-module>"
        )

    def folder(self) -> Path:
        return JARS_DIR / f"{self.name}-{hashlib.sha256(self.ivy_file().encode()).hexdigest()[:8]}"


APACHE_KAFKA = JarSet(
    "apache-kafka-4.3.1",
    (
        ("org.apache.kafka", "kafka_2.13", "4.3.1"),
        ("org.apache.kafka", "kafka-tools", "4.3.1"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    transitive=True,
    seconds_max=240,
    # The tools bring Kafka Connect and its web server along: half of the download, and nothing here runs it.
    excluded=(("org.apache.kafka", "connect-runtime"),),
)

# Named one by one: the token provider that spark-sql-kafka 4.2.0 asks for is not in the Maven repository.
SPARK_KAFKA = JarSet(
    "spark-kafka-4.2.0",
    (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ),
    transitive=False,
    seconds_max=90,
)


def kafka_classpath() -> str:
    """The class path of Apache Kafka's server and tools; fetched if need be, else JarsUnavailable."""
    return os.pathsep.join(map(str, _jars(APACHE_KAFKA)))


def spark_kafka_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector, for `spark.jars`; fetched if need be, else JarsUnavailable."""
    return list(_jars(SPARK_KAFKA))


def _jars(wanted: JarSet) -> tuple[Path, ...]:
    found = _fetched_or_reason(wanted)
    if isinstance(found, str):
        raise JarsUnavailable(found)
    return found


@functools.cache  # also of the reason: an unreachable repository is waited for once per process, not once per test
def _fetched_or_reason(wanted: JarSet) -> tuple[Path, ...] | str:
    folder = wanted.folder()
    try:
        if not folder.is_dir():
            _fetch(wanted, folder)
    except (JarsUnavailable, JavaUnavailable, OSError) as error:
        return f"{wanted.name} could not be fetched: {error}"
    return tuple(sorted(folder.glob("*.jar")))


def _fetch(wanted: JarSet, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{wanted.name}-", dir=folder.parent))
    try:
        ivy_file = temporary / "ivy.xml"
        ivy_file.write_text(wanted.ivy_file())
        retrieved = temporary / "jars"
        _run_ivy(
            wanted.seconds_max,
            [f"-Divy.default.ivy.user.dir={temporary / 'ivy'}"],  # its cache: not in HOME, and gone afterwards
            ["-ivy", str(ivy_file), "-confs", "default"],
            ["-retrieve", f"{retrieved}/[artifact]-[revision](-[classifier]).[ext]"],
        )
        for _, name, version in wanted.modules:
            if not (retrieved / f"{name}-{version}.jar").is_file():
                raise JarsUnavailable(f"the repository has no {name}-{version}.jar")
        try:
            retrieved.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first, with the same jars
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _run_ivy(seconds_max: int, jvm_options: list[str], *arguments: list[str]) -> None:
    command = [java_command(), "-Xmx256m", *jvm_options, "-jar", str(_ivy_jar())]
    settings = os.environ.get("PYLOG_IVY_SETTINGS")  # for networks that reach the Maven repository through a mirror
    if settings:
        command += ["-settings", settings]
    for some in arguments:
        command += some
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JarsUnavailable(f"no answer from the Maven repository in {seconds_max} s") from error
    if done.returncode != 0:
        raise JarsUnavailable(f"Ivy says: {_essence(done.stdout)}")


def _essence(output: str) -> str:
    """The lines of Ivy's report that name the trouble, on one line."""
    telling = [line.strip(": \t") for line in output.splitlines() if "not found" in line or "rror" in line]
    return "; ".join(dict.fromkeys(telling[:4])) or output[-400:].strip()


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # looked up, not imported: only its files are wanted
    if spec is None or spec.origin is None:
        raise JarsUnavailable("PySpark, whose Ivy fetches jars, is not installed")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise JarsUnavailable("the installed PySpark has no Ivy among its jars")
    return found[-1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.jars", description="Fetch jars, once.")
    parser.add_argument(
        "--spark-kafka", action="store_true", help="only those of Spark's Kafka connector: print a list"
    )
    only_spark = parser.parse_args().spark_kafka
    try:
        if only_spark:
            print(",".join(map(str, spark_kafka_jars())))
            return 0
        for wanted in (SPARK_KAFKA, APACHE_KAFKA):
            print(f"{len(_jars(wanted))} jars in {wanted.folder()}")
    except JarsUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
