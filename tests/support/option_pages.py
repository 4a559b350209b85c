"""Pages of docs/ with tables of options: each table is made of the rows in the code, `--rewrite-transcripts` writes it.

A table stands between `<!-- name: ... -->` and `<!-- /name -->`."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pylog.connector.client.config import OPTIONS as CLIENT_OPTIONS
from pylog.connector.client.config import Role
from pylog.connector.spark.option_rows import OPTIONS, Taker

DOCS = Path(__file__).parents[2] / "docs"
_TABLE = re.compile(r"(<!-- (\w+): [^\n]* -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)


def of_takers(takers: Mapping[Taker, str]) -> Iterable[str]:
    """The data source's own options, with who takes them where there is a choice."""
    yield "| option | of | default | |" if len(takers) > 1 else "| option | default | |"
    yield "|---|---|---|---|" if len(takers) > 1 else "|---|---|---|"
    for row in OPTIONS:
        found = ", ".join(takers[taker] for taker in row.takers if taker in takers)
        if found:
            of = f" {found} |" if len(takers) > 1 else ""
            ours = "" if row.is_sparks else ". Not an option of Spark's"
            yield f"| `{row.name}` |{of} {_shown(row.default)} | {_escaped(row.doc)}{ours} |"


def of_client(role: Role, defaults: Mapping[str, str] | None = None, prefix: str = "kafka.") -> Iterable[str]:
    """A client's options of a role; `defaults` are those that the data source has of its own."""
    yield "| option | type | default | |"
    yield "|---|---|---|---|"
    for row in CLIENT_OPTIONS.values():
        if row.is_of(role):
            default = (defaults or {}).get(row.name, row.default)
            yield f"| `{prefix}{row.name}` | {row.type} | {_shown(default)} | {_escaped(row.doc)} |"


def assert_tables(path: Path, tables: Mapping[str, Callable[[], Iterable[str]]], rewrite: bool) -> None:
    """The page has these tables, as they are, and no others."""
    wanted = {name: "\n".join(rows()) + "\n" for name, rows in tables.items()}
    page = path.read_text()
    if rewrite:
        page = _TABLE.sub(lambda found: found[1] + wanted[found[2]] + found[4], page)
        path.write_text(page)
    found = {name: text for _, name, text, _ in _TABLE.findall(page)}
    assert found == wanted, "--rewrite-transcripts writes them anew"


def _shown(default: Any) -> str:
    text = ", ".join(default) if isinstance(default, tuple) else default
    text = str(text).lower() if isinstance(text, bool) else text  # as a user writes it
    return "not set" if text in (None, "") else f"`{text}`"


def _escaped(doc: str) -> str:
    return re.sub(r"({.*}}?|\[.*?\])", r"`\1`", doc).replace("|", "\\|")
