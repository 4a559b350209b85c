"""Every metric that there is, each in one row: its name, its kind, its labels, and what it says.

The page docs/operations.md is made from this table. Names are Prometheus': the unit last, `_total` behind what only
grows. What starts with `process_` is named as all programs name it.
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


FAMILIES: list[Family] = []


def _family(name: str, kind: Kind, text: str, *labels: str) -> Family:
    family = Family(name, kind, labels, text)
    FAMILIES.append(family)
    return family


def _counter(name: str, text: str, *labels: str) -> Family:
    return _family(name, "counter", text, *labels)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return _family(name, "gauge", text, *labels)


_PARTITION = ("topic", "partition")
_COMMIT = ("group", "topic", "partition")

# -- the process

BUILD_INFO = _gauge("pylog_build_info", "Always 1; the labels say what is running.", "version", "python")
READY = _gauge("pylog_ready", "1 if clients are served, as /health/ready tells it, else 0.")
PROCESS_START = _gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
PROCESS_CPU = _counter("process_cpu_seconds_total", "CPU time that the process has used, its own and the system's.")
PROCESS_MEMORY = _gauge("process_resident_memory_bytes", "Memory that the process has. Linux only.")
PROCESS_DESCRIPTORS = _gauge("process_open_fds", "Open file descriptors. Linux only.")
PROCESS_DESCRIPTORS_MAX = _gauge("process_max_fds", "How many descriptors the process may open.")

# -- requests

REQUEST_SECONDS = _family(
    "pylog_request_duration_seconds",
    "histogram",
    "From when a whole request has come until its answer is made. A fetch that waits for records counts its wait, a "
    "join that of its rebalance. `_count` is the number of requests.",
    "api",
)
REQUEST_ERRORS = _counter(
    "pylog_request_errors_total",
    "Error codes in answers: one for each topic, partition, group or whole request that was refused.",
    "api",
    "error",
)
REQUESTS_FAILED = _counter(
    "pylog_requests_failed_total", "Requests that a fault of the broker left without an answer; each is logged.", "api"
)
REQUESTS_MALFORMED = _counter(
    "pylog_requests_malformed_total", "What came and was no request of a known API and version."
)

# -- connections

CONNECTIONS = _gauge("pylog_connections", "Open connections of clients.")
CONNECTIONS_MADE = _counter("pylog_connections_made_total", "Connections that were accepted.")
CONNECTIONS_REFUSED = _counter(
    "pylog_connections_refused_total",
    "Connections closed at once because there were too many from one address (max.connections.per.ip).",
)
CONNECTIONS_IDLE_CLOSED = _counter(
    "pylog_connections_idle_closed_total", "Connections closed after connections.max.idle.ms."
)
REQUEST_MEMORY = _gauge(
    "pylog_request_memory_bytes", "Memory of requests that arrive or are worked on, of queued.max.request.bytes."
)

# -- topics and disks

TOPICS = _gauge("pylog_topics", "Topics, internal ones too.")
PARTITIONS = _gauge("pylog_partitions", "Partitions, offline ones too.")
OFFLINE_PARTITIONS = _gauge("pylog_offline_partitions", "Partitions whose log cannot be used; /health names them.")
UNDER_REPLICATED = _gauge(
    "pylog_under_replicated_partitions",
    "Partitions with fewer replicas in sync than they have. With one replica: those that are offline.",
)
UNDER_MIN_ISR = _gauge(
    "pylog_under_min_isr_partitions",
    "Partitions with fewer replicas in sync than min.insync.replicas: produce with acks=all is refused.",
)
OFFLINE_DIRECTORIES = _gauge("pylog_offline_log_directories", "Data directories that could not be read at the start.")
DIRECTORY_FREE = _gauge(
    "pylog_log_directory_free_bytes", "Room that is left on the disk of a data directory.", "directory"
)
DIRECTORY_SIZE = _gauge("pylog_log_directory_total_bytes", "Size of the disk of a data directory.", "directory")

# -- partitions

BYTES_IN = _counter(
    "pylog_partition_bytes_in_total", "Bytes of records appended since the process started.", *_PARTITION
)
BATCHES_IN = _counter("pylog_partition_batches_in_total", "Appends of record batches since then.", *_PARTITION)
BYTES_OUT = _counter("pylog_partition_bytes_out_total", "Bytes of records sent to readers since then.", *_PARTITION)
START_OFFSET = _gauge("pylog_partition_start_offset", "The first offset that is there.", *_PARTITION)
HIGH_WATERMARK = _gauge(
    "pylog_partition_high_watermark", "The offset behind the last committed record: as far as readers see.", *_PARTITION
)
END_OFFSET = _gauge(
    "pylog_partition_end_offset", "The offset of the next record; its rate is that of records coming in.", *_PARTITION
)
SIZE = _gauge("pylog_partition_size_bytes", "Size of the log, without its indexes.", *_PARTITION)
SEGMENTS = _gauge("pylog_partition_segments", "Segments of the log.", *_PARTITION)
HEADROOM_BYTES = _gauge(
    "pylog_partition_retention_headroom_bytes",
    "What the log may grow by before retention.bytes deletes its oldest segment. Only where there is such a limit.",
    *_PARTITION,
)
HEADROOM_SECONDS = _gauge(
    "pylog_partition_retention_headroom_seconds",
    "When retention.ms deletes the oldest segment, from now. Only where there is such a limit, and records.",
    *_PARTITION,
)

# -- groups

GROUPS = _gauge("pylog_groups", "Groups in a state.", "state")
GROUP_REBALANCES = _counter("pylog_group_rebalances_total", "Generations that began since the start, of all groups.")
GROUP_STATE = _gauge("pylog_group_state", "Always 1; the label says in which state the group is.", "group", "state")
GROUP_MEMBERS = _gauge("pylog_group_members", "Members of the group.", "group")
GROUP_GENERATION = _gauge("pylog_group_generation", "The group's generation: one more with every rebalance.", "group")
GROUP_OFFSET = _gauge("pylog_group_committed_offset", "What the group has committed.", *_COMMIT)
GROUP_LAG_RECORDS = _gauge(
    "pylog_group_lag_records", "Offsets between what the group has committed and the high watermark.", *_COMMIT
)
GROUP_LAG_SECONDS = _gauge(
    "pylog_group_lag_seconds",
    "Age of the first record behind what the group has committed, to within one batch; 0 if there is none. Left out "
    "where records have no timestamps.",
    *_COMMIT,
)

# -- upkeep

UPKEEP_FAILURES = _counter(
    "pylog_upkeep_failures_total", "Rounds of upkeep (flush, retention, compaction…) that failed.", "round"
)
COMPACTIONS = _counter("pylog_compactions_total", "Logs that were compacted since the start.")
UNCLEANABLE = _gauge("pylog_uncleanable_partitions", "Partitions that compaction found damaged and leaves alone.")
