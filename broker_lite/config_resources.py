"""What has a configuration: topics, this broker, all brokers, groups, loggers. Who asks for another is told so."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pylog.broker_lite.config import ConfigError
from pylog.broker_lite.config_changes import Changes
from pylog.broker_lite.config_rows import ROW
from pylog.broker_lite.config_types import Row, show
from pylog.broker_lite.errors import RequestError
from pylog.broker_lite.machines.topics import check_name
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.metadata_records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from pylog.broker_lite.topic_rows import TOPIC_ROW

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker

TOPIC, BROKER, GROUP = TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE
LOGGER, CLIENT_METRICS = 8, 16

Decide = Callable[[Mapping[str, str], Mapping[str, Row]], Changes]  # of what is set now, and the rows


def change(broker: "Broker", kind: int, name: str, decide: Decide, *, validate_only: bool) -> None:
    """In force after this, if it does not raise, and to be answered when the catalogue is flushed."""
    if kind == TOPIC:
        check_topic(broker, name)
        rows, code = TOPIC_ROW, ErrorCode.INVALID_CONFIG
    elif kind == BROKER:
        check_node(broker, name, all_brokers=True)
        rows, code = ROW, ErrorCode.INVALID_REQUEST  # as Kafka: INVALID_CONFIG is for topics
    elif kind == GROUP:
        from pylog.broker_lite.group_rows import GROUP_ROW  # here: few groups have options

        check_group(name)
        rows, code = GROUP_ROW, ErrorCode.INVALID_CONFIG
    else:
        raise unknown_kind(kind)
    catalogue = broker.catalogue
    changes = decide(catalogue.topics.overrides_of(kind, name), rows)
    shown = {option: _canonical(rows.get(option), value) for option, value in changes.items()}
    try:
        catalogue.configure(kind, name, shown, validate_only=validate_only)
    except ConfigError as error:
        raise RequestError(code, str(error)) from None


def _canonical(row: Row | None, value: str | None) -> str | None:
    """As it will be shown, however it was written; what cannot be is left for whoever says so."""
    if row is None or value is None:
        return value
    try:
        return show(row.parse(value))
    except ValueError:
        return value


def check_group(name: str) -> None:
    """A group need not be there to have options."""
    if not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, "The group has no name.")


def check_topic(broker: "Broker", name: str) -> None:
    if not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, "The topic has no name; what all topics have, brokers set.")
    check_name(name)
    if name not in broker.topics.by_name:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")


def check_node(broker: "Broker", name: str, *, all_brokers: bool) -> None:
    """This broker by its id, or "" for all brokers."""
    if name == "" and all_brokers:
        return
    if not name.isdecimal():
        raise RequestError(ErrorCode.INVALID_REQUEST, f"A broker is named by its id, which '{name}' is not.")
    if int(name) != broker.node_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"This is broker {broker.node_id}, not {name}.")


def unknown_kind(kind: int) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, f"Resources of type {kind} have no configuration here.")
