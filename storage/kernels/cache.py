"""Where compiled kernels are kept, so that a machine compiles them once and a forked worker only loads them.

The cache is pickles, so a directory that anybody else could write to is never used. Its name carries a digest of
the kernels' sources: numba looks only at the file of the function itself, not at the helpers it has inlined.
"""

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numba as _numba

numba: Any = _numba  # its own types do not describe compiled functions as what they are: functions
types: Any = _numba.types

_log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(signature: Any, *, cached: bool = True) -> Callable[[_Function], _Function]:
    """Compile for exactly this signature, or load what was compiled before. Kernels run without the GIL."""

    def decorate(function: _Function) -> _Function:
        directory = cache_directory() if cached else None
        for attempt in (1, 2) if directory is not None else ():
            try:
                with _numba_config(CACHE_DIR=str(directory), DISABLE_JIT=0, CACHE_LOCATOR_CLASSES=""):
                    compiled: _Function = numba.njit(signature, cache=True, nogil=True)(function)
                    return compiled
            except Exception as error:  # a full disk, a file that a power cut left empty, a source inside a zip
                _log.warning("attempt %d to cache %s in %s: %r", attempt, function.__name__, directory, error)
                _forget(directory, function.__name__)
        with _numba_config(DISABLE_JIT=0):
            uncached: _Function = numba.njit(signature, nogil=True)(function)
            return uncached

    return decorate


def _forget(directory: Path | None, name: str) -> None:
    with contextlib.suppress(OSError):
        for file in directory.rglob(f"*.{name}-*.nb?") if directory else ():
            file.unlink()


def helper(function: _Function) -> _Function:
    """A function that kernels inline; it is compiled into each of them and never called from Python."""
    with _numba_config(DISABLE_JIT=0):
        compiled: _Function = numba.njit(nogil=True, forceinline=True)(function)
        return compiled


@contextlib.contextmanager
def _numba_config(**settings: Any) -> Iterator[None]:
    """Our settings while we decorate; the user's own numba code never sees them."""
    before = {name: getattr(numba.config, name) for name in settings if hasattr(numba.config, name)}
    try:
        for name in before:
            setattr(numba.config, name, settings[name])
        yield
    finally:
        for name, value in before.items():
            setattr(numba.config, name, value)


_UNKNOWN: Any = object()
_directory: Path | None = _UNKNOWN


def cache_directory() -> Path | None:
    """The first usable place; None if there is none, and then every process compiles for itself."""
    global _directory
    if _directory is _UNKNOWN:
        _directory = next(filter(None, map(_usable, _candidates())), None)
    return _directory


def _candidates() -> Iterator[Path]:
    if own := os.environ.get("PYLOG_CACHE_DIR"):
        yield Path(own) / "kernels"
    if numba.config.CACHE_DIR:
        yield Path(numba.config.CACHE_DIR) / "pylog-kernels"
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        yield Path(xdg) / "pylog" / "kernels"
    elif home := os.environ.get("HOME"):
        yield Path(home) / ".cache" / "pylog" / "kernels"
    yield Path(tempfile.gettempdir()) / f"pylog-{os.getuid()}" / "kernels"


def _usable(place: Path) -> Path | None:
    directory = place / _sources_digest()
    try:
        # the parent too: in a shared temporary directory somebody else may have made it first
        for made in (place.parent, place, directory):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        for made in (place, directory):
            _refuse_others(made)
        if place.parent.name == f"pylog-{os.getuid()}":
            _refuse_others(place.parent)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        _log.info("kernels are not cached in %s: %s", directory, error)
        return None
    return directory


def _refuse_others(directory: Path) -> None:
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{directory} is not a directory that only this user can write to")


def _sources_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
