"""CRC-32C: the function of the `crc32c` package, from its extension alone.

The package itself asks for its own version when it is imported, and what that takes (mail and zip parsers, a look at
all that is installed) was a seventh of a broker's start."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

_PACKAGE = "crc32c"
_EXTENSION = "crc32c._crc32c"


def _loaded() -> Callable[..., int]:
    """(data, value=0): the checksum of all before the data is its value."""
    if _EXTENSION not in sys.modules:
        package = importlib.util.find_spec(_PACKAGE)  # does not import it
        found = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations) if package is not None else None
        if found is None or found.loader is None:
            raise ImportError(f"{_EXTENSION} is not installed; pylog needs the package {_PACKAGE}", name=_PACKAGE)
        module: Any = importlib.util.module_from_spec(found)
        sys.modules[_EXTENSION] = module
        found.loader.exec_module(module)
    return sys.modules[_EXTENSION].crc32c  # type: ignore[no-any-return]


crc32c = _loaded()
