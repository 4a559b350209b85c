"""The Java that Spark, Ivy and Apache Kafka run on: JAVA_HOME's if that is set, else the one on PATH.

PySpark chooses the same way, so a test never mixes two Javas."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_VERSION_MIN = 17


class JavaUnavailable(Exception):
    """There is no usable Java; the message says what to install."""


@functools.cache
def java_command() -> str:
    """The path of a `java` of version 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        raise JavaUnavailable(f"no java {'in JAVA_HOME' if home else 'on PATH'}: install a JDK of version 17 or newer")
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        raise JavaUnavailable(f"{java} is too old: install a JDK of version 17 or newer and point JAVA_HOME at it")
    return java
