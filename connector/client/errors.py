"""What can go wrong between a client and its brokers, each with a message that says what to do.

`Retriable` marks what may pass by itself (a broker restarts, a leader moves): the retry loops of this
package try those again until their time is up. Everything else reaches the caller at once.
Arguments are kept as given, so that every error can be pickled between Spark's processes.
"""

from collections.abc import Sequence
from uuid import UUID

from pylog.broker_lite.protocol.errors import is_retriable, name_of


class ClientError(Exception):
    """Base of everything this package raises on purpose."""


class Retriable(ClientError):
    """May pass by itself: worth another attempt after a pause and a look at fresh metadata."""


class ConfigError(ClientError, ValueError):
    """An option that is unknown, wrong, or not supported."""


class BrokerUnavailable(Retriable):
    """No broker answered at any of the addresses; `tried` holds (address, cause) pairs."""

    def __init__(self, tried: Sequence[tuple[str, str]]) -> None:
        super().__init__(tried)
        self.tried = tried

    def __str__(self) -> str:
        causes = "; ".join(f"{address}: {cause}" for address, cause in self.tried)
        return f"no broker could be reached ({causes}). Is a broker running there?"


class ConnectionLost(Retriable):
    """The connection broke or fell silent; what was in flight on it may or may not have happened."""

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(address, cause)
        self.address = address
        self.cause = cause

    def __str__(self) -> str:
        return f"the connection to {self.address} was lost: {self.cause}"


class NotKafka(ClientError):
    """What came back is not what a Kafka broker answers. Never retried: it would come back again."""

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(address, cause)
        self.address = address
        self.cause = cause

    def __str__(self) -> str:
        return (
            f"{self.address} does not answer as a Kafka broker: {self.cause}. Is it a listener of a broker, and is "
            "security.protocol the one that it has?"
        )


class TlsFailed(ClientError):
    """No secure connection. Never retried: neither certificates nor options mend themselves."""

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(address, cause)
        self.address = address
        self.cause = cause

    def __str__(self) -> str:
        return f"there is no secure connection to {self.address}: {self.cause}"


class AuthenticationFailed(ClientError):
    """The broker does not believe that the client is who it says. Never retried: some lock a user out who tries."""

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(address, cause)
        self.address = address
        self.cause = cause

    def __str__(self) -> str:
        return f"{self.address} does not let this client in: {self.cause}"


class TokenUnavailable(Retriable):
    """There is no token for OAUTHBEARER at the moment."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)

    def __str__(self) -> str:
        return f"no token for OAUTHBEARER: {self.args[0]}"


class UnsupportedVersion(ClientError):
    """The broker and this client share no version of an API."""

    def __init__(self, address: str, api: str, ours: tuple[int, int], theirs: tuple[int, int] | None) -> None:
        super().__init__(address, api, ours, theirs)

    def __str__(self) -> str:
        address, api, ours, theirs = self.args
        spoken = f"versions {theirs[0]}-{theirs[1]}" if theirs else "no version"
        return (
            f"{address} speaks {spoken} of {api}, this client {ours[0]}-{ours[1]}: use a broker of Kafka 2.1 or later"
        )


class KafkaError(ClientError):
    """An error code in a broker's answer; `context` says what was asked."""

    def __init__(self, code: int, context: str, detail: str | None = None) -> None:
        super().__init__(code, context, detail)
        self.code = code
        self.name = name_of(code)
        self.context = context
        self.detail = detail

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.context}: the broker answered {self.name} ({self.code}){detail}"


class RetriableKafkaError(KafkaError, Retriable):
    """A code that Kafka's own clients retry."""


class UnknownTopic(ClientError):
    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"the topic {self.topic!r} does not exist and the broker did not create it: "
            "create it first, or turn on auto.create.topics.enable on the broker and write to it"
        )


class TopicRemade(ClientError):
    """Another topic has the name now: the one that was meant is gone."""

    def __init__(self, topic: str, was: UUID, now: UUID) -> None:
        super().__init__(topic, was, now)
        self.was = was
        self.now = now

    def __str__(self) -> str:
        return f"the topic {self.args[0]!r} was deleted and made anew: its id was {self.was} and is {self.now}"


class UnknownPartition(ClientError):
    def __init__(self, topic: str, partition: int, count: int) -> None:
        super().__init__(topic, partition, count)

    def __str__(self) -> str:
        topic, partition, count = self.args
        return f"the topic {topic!r} has no partition {partition}: its partitions are 0 to {count - 1}"


class OffsetOutOfRange(ClientError):
    """The log no longer (or not yet) holds this offset."""

    def __init__(self, topic: str, partition: int, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(topic, partition, offset, log_start_offset, log_end_offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} does not hold offset {self.offset}: "
            f"it holds [{self.log_start_offset}, {self.log_end_offset})"
        )


class RangeNotReached(ClientError):
    """The records before `end` did not arrive in time."""

    def __init__(self, topic: str, partition: int, offset: int, end: int, high_watermark: int, waited_ms: int) -> None:
        super().__init__(topic, partition, offset, end, high_watermark, waited_ms)

    def __str__(self) -> str:
        topic, partition, offset, end, high_watermark, waited_ms = self.args
        return (
            f"{topic}-{partition} was to be read up to offset {end}, but offset {offset} did not arrive in "
            f"{waited_ms} ms and its log ends at {high_watermark}: were records lost on the broker?"
        )


class CorruptRecords(ClientError):
    """A fetched batch is damaged, or is of a format that is not supported."""

    def __init__(self, topic: str, partition: int, offset: int, cause: str) -> None:
        super().__init__(topic, partition, offset, cause)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        topic, partition, offset, cause = self.args
        return f"{topic}-{partition} is damaged at offset {offset}: {cause}"


class DeliveryFailed(ClientError):
    """Records could not be written, or nobody said that they were: they may be in the log. Others are not touched."""

    def __init__(self, topic: str, partition: int, record_count: int, cause: str) -> None:
        super().__init__(topic, partition, record_count, cause)
        self.topic = topic
        self.partition = partition

    def __str__(self) -> str:
        topic, partition, record_count, cause = self.args
        return f"{record_count} records for {topic}-{partition} were not written: {cause}"


class RecordTooLarge(ClientError):
    """A record that can never be sent."""

    def __init__(self, topic: str, partition: int, size_bytes: int, option: str, limit_bytes: int) -> None:
        super().__init__(topic, partition, size_bytes, option, limit_bytes)

    def __str__(self) -> str:
        topic, partition, size_bytes, option, limit_bytes = self.args
        return (
            f"a record for {topic}-{partition} takes {size_bytes} bytes, more than {option}={limit_bytes}: raise it "
            "(and max.message.bytes of the topic), or send less at once"
        )


class BufferFull(ClientError, TimeoutError):
    """The brokers do not keep up: there was no room for more records in time. They were not sent."""

    def __init__(self, buffer_memory: int, max_block_ms: int, oldest: str = "") -> None:
        super().__init__(buffer_memory, max_block_ms)
        self.oldest = oldest  # not among the arguments: OSError takes a third one for the name of a file

    def __str__(self) -> str:
        return (
            f"there was no room in buffer.memory={self.args[0]} within max.block.ms={self.args[1]}: the brokers do not "
            f"take records as fast as they come, or cannot be reached. {self.oldest}"
        ).rstrip()


class NoMetadata(ClientError, TimeoutError):
    """Brokers were asked for a topic's partitions, and none has answered in time. Nothing was sent."""

    def __init__(self, topic: str, max_block_ms: int) -> None:
        super().__init__(topic, max_block_ms)

    def __str__(self) -> str:
        return (
            f"the partitions of the topic {self.args[0]!r} are not known after max.block.ms={self.args[1]}: brokers "
            "were asked, and none has answered yet. Do they hang?"
        )


class MadeBeforeFork(ClientError):
    """A process has its parent's producer or futures, and nobody in it who sends."""

    def __str__(self) -> str:
        return "this producer was made before a fork: make one in each process"


class ProducerClosed(ClientError):
    """Nothing can be sent with a producer after `close`; what was not settled by then may or may not be written."""

    def __str__(self) -> str:
        return "the producer is closed"


def kafka_error(code: int, context: str, detail: str | None = None) -> KafkaError:
    """The exception for an error code: retriable or not."""
    return (RetriableKafkaError if is_retriable(code) else KafkaError)(code, context, detail)
