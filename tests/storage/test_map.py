"""The map at the front of the folder leads to every file in it, and to no other."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from pylog import storage


def test_every_module_has_its_place_on_the_map() -> None:
    assert storage.__doc__ is not None
    rows = re.findall(r"^    ([a-z_*, ]+?)  ", storage.__doc__, re.MULTILINE)
    patterns = [name for row in rows for name in row.split(", ")]
    modules = {path.stem for path in Path(storage.__path__[0]).glob("*.py")} - {"__init__"}
    placed = {pattern: {name for name in modules if fnmatchcase(name, pattern)} for pattern in patterns}
    assert [pattern for pattern, names in placed.items() if not names] == []
    assert modules - set().union(*placed.values()) == set()
