"""The cleaner in a process of its own: it burns CPU, and loads numba, which a broker never does.

The plan goes in as one line of JSON, and one line comes back: the result or an error. Stdin stays open as long as
somebody waits for it; the worker ends when it closes, so it does not outlive its parent.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pylog.storage import errors
from pylog.storage.compaction import CleanedGroup, CleaningPlan, CleaningResult, remove_cleaned
from pylog.storage.disk import DISK
from pylog.storage.errors import CleanerFailed, DamagedSegment, StorageError

_WORKER = "pylog.storage.kernels.cleaner_worker"
_IMPORT_ROOT = Path(__file__).parents[2]  # where this process has found pylog
_STDERR_BYTES_MAX = 4096


class CleanerProcess:
    """One run. `wait` takes what comes, from any thread; `stop` ends it from any other."""

    def __init__(self, plan: CleaningPlan) -> None:
        path = os.pathsep.join(filter(None, (str(_IMPORT_ROOT), os.environ.get("PYTHONPATH"))))
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  `wait` closes it
        self._stopped = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._plan = plan

    def wait(self) -> CleaningResult:
        """As `pylog.storage.kernels.cleaner.clean`; raises what the worker raised, and CleanerFailed if it died."""
        try:
            with self._process, self._stderr:
                return self._converse()
        except BaseException:
            with contextlib.suppress(OSError):  # the directory may be gone
                remove_cleaned(self._plan.directory, DISK)
            raise

    def _converse(self) -> CleaningResult:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            try:
                stdin.write(self._plan.to_json().encode() + b"\n")
                stdin.flush()
            except BrokenPipeError:  # it has died; stdout and stderr tell more
                with contextlib.suppress(BrokenPipeError):  # what is still in the buffer
                    stdin.close()
            line = stdout.readline()
        except BaseException:
            self._process.kill()
            raise
        if not line.endswith(b"\n"):  # it has not said all
            self._process.wait()
            raise CleanerFailed(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise error_from_json(answer["error"])
        return result_from_json(answer["result"])

    def stop(self) -> None:
        """`wait` raises CleanerFailed."""
        self._stopped = True
        self._process.kill()

    def _last_words(self) -> str:
        if self._stopped:
            return f"{self._plan.directory}: compaction was stopped"
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_BYTES_MAX))
        said = self._stderr.read().decode(errors="replace").strip()
        return f"{self._plan.directory}: the cleaner ended with code {self._process.returncode}: {said}"


def run_cleaner(plan: CleaningPlan) -> CleaningResult:
    """`pylog.storage.kernels.cleaner.clean`, elsewhere."""
    return CleanerProcess(plan).wait()


# -- what goes over the pipe


def result_from_json(values: list[Any]) -> CleaningResult:
    groups, *numbers = values
    return CleaningResult(tuple(CleanedGroup(base, tuple(old), size) for base, old, size in groups), *numbers)


def error_to_json(error: Exception) -> dict[str, Any]:
    match error:
        case DamagedSegment():
            return {"type": "DamagedSegment", "place": [str(error.path), error.position, error.reason]}
        case OSError(errno=int(number)):
            return {"type": "OSError", "place": [number, error.strerror, error.filename]}
        case StorageError():
            return {"type": type(error).__name__, "message": str(error)}
    return {"type": "CleanerFailed", "message": f"{type(error).__name__}: {error}"}


def error_from_json(values: dict[str, Any]) -> Exception:
    if values["type"] == "DamagedSegment":
        path, position, reason = values["place"]
        return DamagedSegment(Path(path), position, reason)
    if values["type"] == "OSError":
        return OSError(*values["place"])
    kind = getattr(errors, values["type"])
    error: Exception = kind(values["message"])
    return error
