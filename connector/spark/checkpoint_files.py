"""Checkpoints on this machine's disk are written without starting processes for it.

Spark writes the files of a checkpoint through Hadoop's `FileContext`. On a local disk that runs `readlink` and `chmod`,
each a process, about 25 times a trigger, because PySpark comes without Hadoop's native library. Through Hadoop's
`FileSystem` the same files are written, and renamed as atomically, with four.

Provided that it is Hadoop's own for local files. PySpark has one of Hive's besides, and takes it unless told otherwise,
which renames nothing over a file that is there: a batch that is repeated would not replace its state.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTION = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
LOCAL_FILES = "org.apache.hadoop.fs.LocalFileSystem"


def without_processes(session: "SparkSession") -> None:
    """Unless the option is set, and only where Spark is on this machine and so are, by default, its files."""
    java: Any = getattr(session, "_jsparkSession", None)
    if java is None:  # of Spark Connect
        return
    settings = java.sessionState().newHadoopConf()  # in which Spark looks it up
    if settings.get(OPTION) is None and _is_here(session, settings) and _is_there(session, MANAGER):
        session.conf.set(OPTION, MANAGER)


def _is_here(session: Any, settings: Any) -> bool:
    if not session.sparkContext.master.startswith("local") or not settings.get("fs.defaultFS").startswith("file:"):
        return False
    files = session._jvm.org.apache.hadoop.fs.FileSystem.get(settings)  # the one that is used: there is one a process
    return bool(files.getClass().getName() == LOCAL_FILES)


def _is_there(session: Any, name: str) -> bool:
    """It is no public class of Spark's: another release may call it otherwise."""
    from py4j.protocol import Py4JJavaError

    java = session._jvm.java.lang
    try:
        java.Class.forName(name, False, java.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError:
        return False
    return True
