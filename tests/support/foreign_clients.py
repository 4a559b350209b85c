"""confluent-kafka (librdkafka), kafka-python and aiokafka behind one face: a test says what is done, not how.

Every call makes a client, uses it and closes it. Consumers assign partitions themselves."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import aiokafka.admin
import confluent_kafka
import kafka
from confluent_kafka import admin as confluent_admin

TIMEOUT_SECONDS = 30
T = TypeVar("T")


class ForeignRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


class Refused(Exception):
    """The broker answered with an error; `code` is Kafka's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class ForeignClient(Protocol):
    def produce(
        self,
        servers: str,
        topic: str,
        records: Sequence[ForeignRecord],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
    ) -> list[int]:
        """The offsets that the records got (-1 with acks=0)."""

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0) -> list[ForeignRecord]: ...

    def offsets_at(self, servers: str, topic: str, timestamps_ms: Sequence[int]) -> list[int | None]:
        """Partition 0: the first offset at or after each timestamp."""

    def range(self, servers: str, topic: str, partition: int = 0) -> tuple[int, int]: ...

    def commit(self, servers: str, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
        """By partition: offset and metadata."""

    def committed(self, servers: str, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int | None]:
        """By partition: the offset, None where there is none."""

    def create_topic(
        self, servers: str, topic: str, partitions: int, *, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None: ...

    def delete_topic(self, servers: str, topic: str) -> None: ...

    def partition_counts(self, servers: str) -> dict[str, int]: ...


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen in {TIMEOUT_SECONDS} s")


class Confluent:
    def produce(
        self,
        servers: str,
        topic: str,
        records: Sequence[ForeignRecord],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
    ) -> list[int]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "compression.type": codec,
                "acks": acks,
                "linger.ms": 50,
                "message.timeout.ms": TIMEOUT_SECONDS * 1000,
                "topic.metadata.propagation.max.ms": 1000,  # how long an unknown topic may still appear
            }
        )
        delivered: list[Any] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                on_delivery=lambda error, message: delivered.append(error or message),
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        assert producer.flush(TIMEOUT_SECONDS) == 0
        for outcome in delivered:
            if isinstance(outcome, confluent_kafka.KafkaError):
                raise Refused(outcome.code(), outcome.str())
        return [-1 if acks == "0" else message.offset() for message in delivered]

    def _consumer(self, servers: str, group: str = "confluent") -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
            }
        )

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0) -> list[ForeignRecord]:
        consumer = self._consumer(servers)
        messages: list[Any] = []
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        _until(lambda: len(messages.__iadd__(consumer.consume(count, 0.2))) >= count, f"{count} records of {topic}")
        consumer.close()
        for message in messages:
            if message.error():
                raise Refused(message.error().code(), message.error().str())
        return [
            ForeignRecord(message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1])
            for message in messages
        ]

    def offsets_at(self, servers: str, topic: str, timestamps_ms: Sequence[int]) -> list[int | None]:
        consumer, found = self._consumer(servers), []
        for timestamp_ms in timestamps_ms:
            asked = [confluent_kafka.TopicPartition(topic, 0, timestamp_ms)]
            offset = consumer.offsets_for_times(asked, TIMEOUT_SECONDS)[0].offset
            found.append(None if offset == confluent_kafka.OFFSET_END else offset)
        consumer.close()
        return found

    def range(self, servers: str, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self._consumer(servers)
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), TIMEOUT_SECONDS)
        consumer.close()
        return low, high

    def commit(self, servers: str, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
        consumer = self._consumer(servers, group)
        places = [confluent_kafka.TopicPartition(topic, p, offset, text) for p, (offset, text) in offsets.items()]
        for place in consumer.commit(offsets=places, asynchronous=False):
            if place.error:
                raise Refused(place.error.code(), place.error.str())
        consumer.close()

    def committed(self, servers: str, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int | None]:
        consumer = self._consumer(servers, group)
        places = consumer.committed([confluent_kafka.TopicPartition(topic, p) for p in partitions], TIMEOUT_SECONDS)
        consumer.close()
        return {place.partition: None if place.offset < 0 else place.offset for place in places}

    def _admin(self, servers: str) -> Any:
        return confluent_admin.AdminClient({"bootstrap.servers": servers})

    def _result(self, futures: Mapping[str, Any]) -> None:
        for future in futures.values():
            try:
                future.result(TIMEOUT_SECONDS)
            except confluent_kafka.KafkaException as error:
                raise Refused(error.args[0].code(), error.args[0].str()) from error

    def create_topic(
        self, servers: str, topic: str, partitions: int, *, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        wanted = confluent_admin.NewTopic(topic, partitions, replicas, config=dict(config or {}))
        admin = self._admin(servers)  # it must outlive its futures
        self._result(admin.create_topics([wanted]))

    def delete_topic(self, servers: str, topic: str) -> None:
        admin = self._admin(servers)
        self._result(admin.delete_topics([topic]))

    def partition_counts(self, servers: str) -> dict[str, int]:
        topics = self._admin(servers).list_topics(timeout=TIMEOUT_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}


class KafkaPython:
    def produce(
        self,
        servers: str,
        topic: str,
        records: Sequence[ForeignRecord],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
            linger_ms=50,
            max_block_ms=TIMEOUT_SECONDS * 1000,
        )
        try:
            futures = [
                producer.send(
                    topic, record.value, record.key, list(record.headers), partition, timestamp_ms=record.timestamp_ms
                )
                for record in records
            ]
            producer.flush(TIMEOUT_SECONDS)
            return [-1 if acks == "0" else future.get(TIMEOUT_SECONDS).offset for future in futures]
        except kafka.errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error
        finally:
            producer.close(TIMEOUT_SECONDS)

    def _consumer(self, servers: str, group: str | None = None) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=50,
        )

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0) -> list[ForeignRecord]:
        consumer = self._consumer(servers)
        place, messages = kafka.TopicPartition(topic, partition), []
        consumer.assign([place])
        consumer.seek(place, 0)

        def enough() -> bool:
            for found in consumer.poll(200).values():
                messages.extend(found)
            return len(messages) >= count

        _until(enough, f"{count} records of {topic}")
        consumer.close()
        return [
            ForeignRecord(message.key, message.value, tuple(message.headers), message.timestamp) for message in messages
        ]

    def offsets_at(self, servers: str, topic: str, timestamps_ms: Sequence[int]) -> list[int | None]:
        consumer, place = self._consumer(servers), kafka.TopicPartition(topic, 0)
        found = [consumer.offsets_for_times({place: timestamp_ms})[place] for timestamp_ms in timestamps_ms]
        consumer.close()
        return [None if one is None else one.offset for one in found]

    def range(self, servers: str, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer, place = self._consumer(servers), kafka.TopicPartition(topic, partition)
        low, high = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
        consumer.close()
        return low, high

    def commit(self, servers: str, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
        consumer = self._consumer(servers, group)
        consumer.assign([kafka.TopicPartition(topic, partition) for partition in offsets])
        try:
            consumer.commit(
                {
                    kafka.TopicPartition(topic, p): kafka.structs.OffsetAndMetadata(offset, text, -1)
                    for p, (offset, text) in offsets.items()
                }
            )
        except kafka.errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error
        finally:
            consumer.close()

    def committed(self, servers: str, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int | None]:
        consumer = self._consumer(servers, group)
        found = {p: consumer.committed(kafka.TopicPartition(topic, p)) for p in partitions}
        consumer.close()
        return found

    def committed_metadata(self, servers: str, group: str, topic: str, partition: int) -> str:
        """What stands beside a committed offset. (confluent-kafka reads past the end of what others wrote.)"""
        consumer = self._consumer(servers, group)
        found = consumer.committed(kafka.TopicPartition(topic, partition), metadata=True)
        consumer.close()
        return str(found.metadata)

    def _ask(self, servers: str, question: Callable[[Any], T]) -> T:
        admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
        try:
            return question(admin)
        except kafka.errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error
        finally:
            admin.close()

    def create_topic(
        self, servers: str, topic: str, partitions: int, *, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(config or {})}
        self._ask(servers, lambda admin: admin.create_topics({topic: wanted}))

    def delete_topic(self, servers: str, topic: str) -> None:
        self._ask(servers, lambda admin: admin.delete_topics([topic]))

    def partition_counts(self, servers: str) -> dict[str, int]:
        described = self._ask(servers, lambda admin: admin.describe_topics())
        return {topic["name"]: len(topic["partitions"]) for topic in described}


class AioKafka:
    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work(), TIMEOUT_SECONDS)

        try:
            return asyncio.run(bounded())
        except aiokafka.errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error

    def produce(
        self,
        servers: str,
        topic: str,
        records: Sequence[ForeignRecord],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
    ) -> list[int]:
        async def work() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=servers,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=acks == "all",
                linger_ms=50,
            )
            async with producer:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                sent = await asyncio.gather(*futures)
            return [-1 if acks == "0" else one.offset for one in sent]

        return self._run(work)

    def _with_consumer(self, servers: str, group: str | None, use: Callable[[Any], Awaitable[T]]) -> T:
        async def work() -> T:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=servers,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="none",
                check_crcs=True,
                fetch_max_wait_ms=50,
            )
            async with consumer:
                return await use(consumer)

        return self._run(work)

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0) -> list[ForeignRecord]:
        async def use(consumer: Any) -> list[ForeignRecord]:
            place = aiokafka.TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, 0)
            messages = [await consumer.getone() for _ in range(count)]
            return [ForeignRecord(one.key, one.value, tuple(one.headers), one.timestamp) for one in messages]

        return self._with_consumer(servers, None, use)

    def offsets_at(self, servers: str, topic: str, timestamps_ms: Sequence[int]) -> list[int | None]:
        async def use(consumer: Any) -> list[int | None]:
            place = aiokafka.TopicPartition(topic, 0)
            found = [(await consumer.offsets_for_times({place: one}))[place] for one in timestamps_ms]
            return [None if one is None else one.offset for one in found]

        return self._with_consumer(servers, None, use)

    def range(self, servers: str, topic: str, partition: int = 0) -> tuple[int, int]:
        async def use(consumer: Any) -> tuple[int, int]:
            place = aiokafka.TopicPartition(topic, partition)
            return (await consumer.beginning_offsets([place]))[place], (await consumer.end_offsets([place]))[place]

        return self._with_consumer(servers, None, use)

    def commit(self, servers: str, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
        async def use(consumer: Any) -> None:
            consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in offsets])
            await consumer.commit({aiokafka.TopicPartition(topic, p): given for p, given in offsets.items()})

        self._with_consumer(servers, group, use)

    def committed(self, servers: str, group: str, topic: str, partitions: Sequence[int]) -> dict[int, int | None]:
        async def work() -> dict[int, int | None]:
            admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers)
            await admin.start()
            try:
                places = [aiokafka.TopicPartition(topic, p) for p in partitions]
                found = await admin.list_consumer_group_offsets(group, partitions=places)
            finally:
                await admin.close()
            return {place.partition: None if one.offset < 0 else one.offset for place, one in found.items()}

        return self._run(work)

    def _ask(self, servers: str, question: Callable[[Any], Awaitable[T]]) -> T:
        async def work() -> T:
            admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=servers)
            await admin.start()
            try:
                return await question(admin)
            finally:
                await admin.close()

        return self._run(work)

    def _check(self, errors: Sequence[Sequence[Any]]) -> None:
        for _, code, *text in errors:
            if code:
                raise Refused(code, str(text))

    def create_topic(
        self, servers: str, topic: str, partitions: int, *, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        wanted = aiokafka.admin.NewTopic(topic, partitions, replicas, topic_configs=dict(config or {}))
        self._check(self._ask(servers, lambda admin: admin.create_topics([wanted])).topic_errors)

    def delete_topic(self, servers: str, topic: str) -> None:
        self._check(self._ask(servers, lambda admin: admin.delete_topics([topic])).topic_error_codes)

    def partition_counts(self, servers: str) -> dict[str, int]:
        described = self._ask(servers, lambda admin: admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in described}


CLIENTS: dict[str, ForeignClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
}
