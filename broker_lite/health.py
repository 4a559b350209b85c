"""Whether the broker is alive, and whether it is ready.

Alive: the process answers. Ready: topics and groups are loaded, listeners accept, topics can be changed, and not every
log is offline. It is not ready before that, nor from the moment it is told to stop. A broker that is not ready is to
be left alone, one that is not alive is to be started anew.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylog.broker_lite.broker import Broker
    from pylog.broker_lite.connections import Connections

NAMED_MAX = 100  # offline partitions in a report; their number is told besides


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Health:
    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.broker: Broker | None = None  # once it is loaded
        self.connections: Connections | None = None  # once they are accepted

    def not_ready_because(self) -> str | None:
        """None: it is ready."""
        broker = self.broker
        if broker is None or self.phase is Phase.STARTING:
            return "the logs are being recovered and loaded"
        if self.phase is Phase.STOPPING:
            return "the broker is stopping"
        if broker.metadata_failure is not None:
            return f"the metadata log is offline: {broker.metadata_failure}"
        offline = broker.offline()
        if offline and not any(place not in offline for place in broker.partitions):
            return "every partition is offline"
        return None

    def report(self) -> dict[str, Any]:
        reason = self.not_ready_because()
        report: dict[str, Any] = {"alive": True, "ready": reason is None, "phase": self.phase.value}
        if reason is not None:
            report["reason"] = reason
        broker = self.broker
        if broker is not None:
            offline = broker.offline()
            report["offline_partition_count"] = len(offline)
            report["offline_partitions"] = [
                {"topic": topic, "partition": index, "reason": why}
                for (topic, index), why in sorted(offline.items())[:NAMED_MAX]
            ]
            report["offline_directories"] = [
                {"directory": str(path), "reason": str(error)}
                for path, error in broker.logs.offline_directories.items()
            ]
        return report
