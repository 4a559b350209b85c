"""`conf/broker.toml` and `docs/options.md`, from the rows. `python -m pylog.broker_lite.options_page`, in a checkout,
writes both; a test sees that they are what the rows say."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pylog.broker_lite.config import BrokerConfig
from pylog.broker_lite.config_rows import BROKER_ROWS
from pylog.broker_lite.config_types import Row, show
from pylog.broker_lite.group_rows import GROUP_ROWS
from pylog.broker_lite.topic_rows import BROKER_NAME, TOPIC_ROW

TOML, PAGE = Path("conf/broker.toml"), Path("docs/options.md")

_TOML_HEAD = """\
# The broker's options, each with its default; uncomment to change. Those without a value are not set.
#   pylog serve --data DIR --config conf/broker.toml --set num.partitions=8
# Names are Kafka's own. They have dots, so TOML wants them in quotes. --set wins over this file.
# An option that is not here is not supported yet, and is refused.
# A topic may override most of log.*, under Kafka's names for topics (retention.ms, cleanup.policy, flush.messages ...).
# These, and some others, may also be changed while the broker runs, by Kafka's admin clients; such changes are kept,
# and win over this file. docs/options.md says which.
"""

_PAGE_HEAD = """\
# Options

Written by `python -m pylog.broker_lite.options_page` from the rows in the code. Names, types and defaults are \
Kafka's; where a default is not, its row says why.

*Changes* says whether an option may be changed while the broker runs, for this broker or for all, as with \
`kafka-configs.sh --alter --entity-type brokers`. Such changes are kept in `__cluster_metadata`, and win over what the \
broker was started with. Every option of a topic may be changed at any time. A value that would do nothing here is \
refused, with the reason.
"""

_GROUPS_HEAD = """\
They are kept and told as Kafka does it, and are those of the newer group protocols, which are not there yet: for a \
classic group none has an effect, here as in Kafka.
"""


def toml() -> str:
    return _TOML_HEAD + "".join(f'\n# {row.doc}\n# "{row.name}" ={_toml_value(row.default)}\n' for row in BROKER_ROWS)


def _toml_value(value: Any) -> str:
    if value is None:
        return ""
    return f' "{show(value)}"' if isinstance(value, str | tuple) else f" {show(value)}"


def page() -> str:
    brokers = [(row, row.default, "yes" if row.dynamic else "no") for row in BROKER_ROWS]
    config = BrokerConfig()
    topics = [
        (row, config[BROKER_NAME[name]], f"`{BROKER_NAME[name]}`") if name in BROKER_NAME else (row, row.default, "-")
        for name, row in TOPIC_ROW.items()
    ]
    return "\n".join(
        (
            _PAGE_HEAD,
            "## Of the broker\n",
            *_table("changes", brokers),
            "\n## Of a topic\n",
            "What is not set for a topic is what the broker has.\n",
            *_table("of the broker", topics),
            "\n## Of a group\n",
            _GROUPS_HEAD,
            *_table("changes", ((row, row.default, "yes") for row in GROUP_ROWS)),
            "",
        )
    )


def _table(last: str, rows: Iterable[tuple[Row, Any, str]]) -> Iterable[str]:
    yield f"| option | type | default | {last} | |"
    yield "|---|---|---|---|---|"
    for row, default, said in rows:
        shown = "not set" if default is None else f"`{show(default)}`" if show(default) else "empty"
        yield f"| `{row.name}` | {row.kind.name.lower()} | {shown} | {said} | {row.doc} |"


if __name__ == "__main__":
    TOML.write_text(toml())
    PAGE.write_text(page())
