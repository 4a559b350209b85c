"""The thread that sends: batches of the accumulator to the leaders of their partitions, several requests in flight.

One thread owns all connections, and waits for them and for callers in one place: to connect, and to ask for metadata or
a producer id, are errands of other threads. A request holds one batch a partition at most: brokers
take no more. Whatever happens to a request, each of its batches is told: acknowledged, sent again, cut in two, or given
up.
"""

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pylog.broker_lite.protocol import init_producer_id, produce
from pylog.broker_lite.protocol.errors import ErrorCode
from pylog.broker_lite.protocol.wire import MalformedFrame
from pylog.connector.client.accumulator import Accumulator, Identity, TopicPartition
from pylog.connector.client.cluster import Cluster
from pylog.connector.client.connection import Connection
from pylog.connector.client.delivery import UNKNOWN_OFFSET, Outcome
from pylog.connector.client.errands import Errands
from pylog.connector.client.errors import (
    ClientError,
    ConnectionLost,
    KafkaError,
    MadeBeforeFork,
    NotKafka,
    Retriable,
    kafka_error,
)
from pylog.connector.client.outcomes import Teller, failed, failure
from pylog.connector.client.pending_batch import PendingBatch
from pylog.connector.client.retry import backoff_ms
from pylog.storage import codecs
from pylog.storage.errors import StorageError

_log = logging.getLogger(__name__)
STOP_SECONDS_MAX = 1.0
SLOW_SECONDS = 1.0  # without an answer
SENDS_MAX = 100  # one behind the other, before it is looked at what else there is
_NO_ANSWER = 0  # acks
_ASK = "ask"  # the errand; those to connect have the number of the node for a name
_UNCOUNTED = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}


class _Request:
    __slots__ = ("batches", "sent_at", "size_bytes")

    def __init__(self) -> None:
        self.batches: dict[tuple[str, int], PendingBatch] = {}
        self.size_bytes = 0
        self.sent_at = 0.0


class _Link:
    """The connection to one leader, and what is in flight on it."""

    __slots__ = ("connection", "fileno", "node", "requests")

    def __init__(self, node: int, connection: Connection) -> None:
        self.node = node
        self.connection = connection
        self.fileno = connection.fileno()
        self.requests: deque[_Request] = deque()

    def has_room(self, in_flight_max: int) -> bool:
        """Not when its session is over: it is left as soon as nothing is in flight, for another one."""
        connection = self.connection
        return len(self.requests) < in_flight_max and not connection.has_unsent and not connection.is_session_over


class Sender:
    """`lock` guards the accumulator; `changed` is told when memory comes free."""

    def __init__(self, cluster: Cluster, accumulator: Accumulator, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.fatal: ClientError | None = None  # nothing can be sent any more
        self.is_orphan = False  # in a forked process
        self._cluster = cluster
        self._config = cluster.config
        self._accumulator = accumulator
        self._clock = clock
        self._codec = codecs.CODEC_BY_NAME[self._config.compression_type]
        self._links: dict[int, _Link] = {}
        self._errands = Errands(self._ring, self._discard)
        self._ask_at = 0.0  # when metadata, or an identity, may be asked for again
        self._failures = 0
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._sleeps = False
        self._stopping = False
        self._teller = Teller(self.changed)
        self._thread = threading.Thread(target=self._run, name="pylog-producer", daemon=True)
        _senders.add(self)

    # From other threads

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be something to send: for callers that hold the lock or not."""
        if self._sleeps:
            self._sleeps = False
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it rings already, or the thread has ended
            self._ringer.send(b"\0")

    def stop(self) -> None:
        """Nothing more is sent. The thread may be busy with a callback: nobody waits for that for long."""
        self._stopping = True
        self._sleeps = True
        self.wake()
        if not self.is_own_thread:
            self._thread.join(STOP_SECONDS_MAX)

    @property
    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def is_telling(self) -> bool:
        """Whether this is a callback that asks."""
        return self._teller.is_telling

    def unheard(self) -> list[PendingBatch]:
        """With the lock held: what has no outcome, or one that not everybody has heard of."""
        return [*self._accumulator.batches(), *self._teller.untold]

    # The thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self.step()
        except BaseException as error:  # a fault of ours: callers are told, lest they wait for a thread that is gone
            _log.exception("the sender failed")
            self._fail_all(ClientError(f"the sender failed: {error!r}"))
        finally:
            self._errands.end()
            for link in list(self._links.values()):
                self._drop(link)
            self._selector.close()
            self._bell.close()
            self._ringer.close()

    def step(self) -> None:
        """Give up what is too old, send what is due, and hear what was answered."""
        with self.lock:
            told = [(batch, self._expired(batch)) for batch in self._accumulator.expire(self._clock())]
            self._teller.decided(told)
        self._teller.tell(told)
        self._errands.take_back()
        wake_at = self._send_all()
        self._hear(wake_at)
        self._look_for_silence()

    # What leaves

    def _send_all(self) -> float | None:
        """Everything that can leave now. When there will be more, if nobody calls and nothing is answered."""
        for _ in range(SENDS_MAX):
            now = self._clock()
            with self.lock:
                no_identity = self._accumulator.needs_identity
                leaderless: set[TopicPartition] = set()
                requests = {} if no_identity or self.fatal else self._fill(now, leaderless)
                self._sleeps = True  # from here on callers ring: what they bring is not in `wake_at`
                wake_at = self._accumulator.next_due(now)
            for node, request in requests.items():
                self._dispatch(node, request)
            if any(self._can_send(node) for node in requests):
                continue
            if self.fatal is None and (no_identity or leaderless) and not self._errands.is_out(_ASK):
                if now >= self._ask_at:
                    self._ask(no_identity, leaderless)
                else:
                    wake_at = self._ask_at if wake_at is None else min(wake_at, self._ask_at)
            return wake_at
        return self._clock()  # with acks=0 nothing else ends it while callers bring more

    def _fill(self, now: float, leaderless: set[TopicPartition]) -> dict[int, _Request]:
        """A request for each leader that can take one."""
        requests: dict[int, _Request] = {}
        for queue in self._accumulator.due(now):
            node = self._cluster.known_leader(*queue.place)
            if node is None:
                leaderless.add(queue.place)
                continue
            if queue.in_flight and queue.node != node:
                continue
            if not self._can_send(node):
                continue
            request = requests.get(node) or requests.setdefault(node, _Request())
            size_bytes = queue.waiting[0].size_bytes
            if not request.batches or request.size_bytes + size_bytes <= self._config.max_request_size:
                request.batches[queue.place] = self._accumulator.take(queue)
                queue.node = node
                request.size_bytes += size_bytes
        return requests

    def _can_send(self, node: int) -> bool:
        """Another request, as far as is known."""
        link = self._links.get(node)
        if link is not None and not link.requests and link.connection.is_session_over:
            self._drop(link)
            link = None
        if link is None:
            return not self._errands.is_out(node)
        return link.has_room(self._config.max_in_flight_requests_per_connection)

    def _dispatch(self, node: int, request: _Request) -> None:
        """On its way, or as soon as there is a connection."""
        link = self._links.get(node)
        if link is not None:
            self._send(link, request)
            return

        def connected(result: Connection | ClientError) -> None:
            if isinstance(result, ClientError):
                self._return([request], result)
            else:
                link = self._links[node] = _Link(node, result)
                self._selector.register(link.fileno, selectors.EVENT_READ, link)
                self._leave_out_what_is_settled(request)
                if request.batches:
                    self._send(link, request)

        self._errands.give(node, lambda: self._connection_to(node), connected)

    def _connection_to(self, node: int) -> Connection:
        connection = self._cluster.connect(node)
        connection.renew()
        return connection

    def _discard(self, result: object) -> None:
        """A connection that comes when this producer has ended serves the next one."""
        if isinstance(result, Connection):
            self._cluster.pool.give(result)

    def _leave_out_what_is_settled(self, request: _Request) -> None:
        """While there was no connection a batch may have been given up, or its time may be up: it was never sent."""
        told: list[tuple[PendingBatch, Outcome]] = []
        with self.lock:
            for place, batch in list(request.batches.items()):
                is_given_up = not self._accumulator.is_in_flight(batch)
                if not is_given_up and batch.promise.outcome is not None:
                    self._accumulator.give_up(batch)
                    told.append((batch, batch.promise.outcome))  # again: who waits for its memory is to hear of it
                    is_given_up = True
                if is_given_up:
                    del request.batches[place]
            self._teller.decided(told)
        self._teller.tell(told)

    def _send(self, link: _Link, request: _Request) -> None:
        try:
            version = link.connection.version(produce.SPEC)
            partitions = [
                produce.ProducePartition(*place, self._sealed(batch)) for place, batch in request.batches.items()
            ]
            partitions.sort(key=lambda partition: partition.topic)  # a topic is named once
            acks = self._config.acks
            wanted = produce.ProduceRequest(None, acks, self._config.request_timeout_ms, partitions)
            request.sent_at = self._clock()
            link.requests.append(request)
            link.connection.queue(
                produce.SPEC, version, produce.encode_request(wanted, version), answered=acks != _NO_ANSWER
            )
            self._attend(link)
        except ClientError as error:
            if request not in link.requests:
                self._return([request], error)
            self._lose(link, error)

    def _sealed(self, batch: PendingBatch) -> memoryview:
        return batch.seal(self._codec, self._config.compression_level, *self._accumulator.identity_of(batch))

    def _attend(self, link: _Link) -> None:
        """Room in a socket is of interest while something waits for it. With acks=0 that is all there is to hear."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.connection.has_unsent else 0)
        if self._selector.get_key(link.fileno).events != events:
            self._selector.modify(link.fileno, events, link)
        if self._config.acks == _NO_ANSWER and not link.connection.has_unsent:
            while link.requests:
                batches = link.requests.popleft().batches.values()
                self._settle((batch, Outcome(UNKNOWN_OFFSET, -1, None)) for batch in batches)

    # What has to be known first

    def _ask(self, no_identity: bool, places: set[TopicPartition]) -> None:
        self._doubt_the_slow()
        if no_identity:
            self._errands.give(_ASK, self._identity, self._learn_identity)
        else:
            topics = {topic for topic, _ in places}
            refused = partial(self._learn_leaders, places)
            self._errands.give(_ASK, lambda: self._cluster.learn(topics, create=True), refused)

    def _doubt_the_slow(self) -> None:
        """Brokers that have not answered for a while, or not yet taken a connection, are not asked before others."""
        for node in self._cluster.nodes:
            link = self._links.get(node)
            since = link.requests[0].sent_at if link is not None and link.requests else self._clock()
            if self._errands.is_out(node) or self._clock() - since > SLOW_SECONDS:
                self._cluster.doubt_node(node)

    def _identity(self) -> Identity:
        with self._cluster.any_broker() as connection:
            answer = connection.call(init_producer_id.SPEC, init_producer_id.InitProducerIdRequest())
        if answer.error_code:
            raise kafka_error(answer.error_code, "asking for a producer id")
        return Identity(answer.producer_id, answer.producer_epoch)

    def _learn_identity(self, result: Identity | ClientError) -> None:
        if isinstance(result, ClientError):
            self._learn_nothing(result, None)
            return
        with self.lock:
            self._accumulator.identity = result
        self._ask_again(learnt=True)

    def _learn_leaders(self, places: set[TopicPartition], refused: Mapping[str, KafkaError] | ClientError) -> None:
        if isinstance(refused, ClientError):
            self._learn_nothing(refused, places)
            return
        final = {topic: error for topic, error in refused.items() if not isinstance(error, Retriable)}
        leaderless = [place for place in places if self._cluster.known_leader(*place) is None]
        with self.lock:
            for topic, partition in leaderless:
                error = refused.get(topic) or self._cluster.why_leaderless(topic, partition)
                self._accumulator.blame(error, [(topic, partition)])
            told = [(batch, failure(batch, final[batch.place[0]])) for batch in self._accumulator.unsent(final)]
            for batch, _ in told:
                self._accumulator.give_up(batch)
            self._teller.decided(told)
        self._teller.tell(told)
        self._ask_again(learnt=len(leaderless) < len(places))

    def _learn_nothing(self, error: ClientError, places: set[TopicPartition] | None) -> None:
        if isinstance(error, Retriable):
            with self.lock:
                self._accumulator.blame(error, places)
            self._ask_again(learnt=False)
        else:
            self._fail_all(error)

    def _ask_again(self, *, learnt: bool) -> None:
        """At once, or after a pause."""
        self._failures = 0 if learnt else self._failures + 1
        self._ask_at = self._clock() + (0 if learnt else backoff_ms(self._config, self._failures) / 1000)

    # What comes back

    def _hear(self, wake_at: float | None) -> None:
        deadlines = [] if wake_at is None else [wake_at]
        timeout = self._config.request_timeout_ms / 1000
        deadlines += [link.requests[0].sent_at + timeout for link in self._links.values() if link.requests]
        found = self._selector.select(max(0.0, min(deadlines) - self._clock()) if deadlines else None)
        self._sleeps = False
        for key, events in found:
            link = key.data
            if link is None:
                with contextlib.suppress(BlockingIOError):
                    self._bell.recv(4096)
                continue
            try:
                if events & selectors.EVENT_WRITE:
                    link.connection.push()
                    self._attend(link)
                if events & selectors.EVENT_READ:
                    self._receive(link)
            except ClientError as error:
                self._lose(link, error)

    def _look_for_silence(self) -> None:
        """A broker that does not answer in time is left, as if the connection had broken; so is one that was not asked
        for long. One whose answer stands there unread has answered: it was this thread that was busy."""
        latest = self._clock() - self._config.request_timeout_ms / 1000
        for link in list(self._links.values()):
            if link.requests and link.requests[0].sent_at < latest and not link.connection.has_answer():
                cause = "no answer to Produce within request.timeout.ms"
                self._lose(link, ConnectionLost(str(link.connection.address), cause))
            elif not link.requests and link.connection.is_aged:
                self._drop(link)

    def _receive(self, link: _Link) -> None:
        if not link.connection.in_flight_count:
            raise ConnectionLost(str(link.connection.address), "the broker closed it")
        while True:
            answer = link.connection.receive()
            try:
                answers = produce.decode_response(answer.body, answer.version)
            except MalformedFrame as error:
                link.connection.close()  # what follows belongs to other requests than it seems
                raise NotKafka(str(link.connection.address), f"its answer to Produce is malformed: {error}") from None
            results = {(str(result.topic), result.partition): result for result in answers}
            missing = link.requests[0].batches.keys() - results.keys()
            if missing:
                topic, partition = min(missing)
                link.connection.close()
                raise NotKafka(str(link.connection.address), f"its answer to Produce leaves out {topic}-{partition}")
            batches = link.requests.popleft().batches
            self._cluster.trust(link.connection.address)
            self._settle((batch, results[place]) for place, batch in batches.items())
            if not link.requests or not link.connection.has_more():
                return

    def _settle(self, results: Iterable[tuple[PendingBatch, "produce.ProducedPartition | Outcome"]]) -> None:
        now = self._clock()
        told: list[tuple[PendingBatch, Outcome]] = []
        try:
            with self.lock:
                for batch, result in results:
                    if not self._accumulator.is_in_flight(batch):
                        continue
                    outcome = result if isinstance(result, Outcome) else self._judge(batch, result, now)
                    if outcome is not None:
                        told.append((batch, outcome))
                        (self._accumulator.give_up if outcome.error else self._accumulator.acknowledge)(batch)
                self._teller.decided(told)
        finally:  # what is settled nobody finds any more, whatever went wrong behind it
            self._teller.tell(told)

    def _judge(self, batch: PendingBatch, result: produce.ProducedPartition, now: float) -> Outcome | None:
        """What became of a batch; None: it is sent again."""
        code = result.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return Outcome(result.base_offset, result.log_append_time_ms, None)
        topic, partition = batch.place
        error = kafka_error(code, f"writing to {topic}-{partition}", result.error_message)
        if batch.promise.outcome is not None:
            return batch.promise.outcome  # its time was up before
        if code in _UNCOUNTED and self._config.enable_idempotence:
            self._accumulator.renumber(batch, now, error)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and self._is_split(batch):
            pass
        elif isinstance(error, Retriable) and batch.attempts <= self._config.retries:
            self._cluster.expire(topic)
            self._accumulator.retry(batch, now, error)
        else:
            return failure(batch, error, self._config.retries)
        return None

    def _is_split(self, batch: PendingBatch) -> bool:
        """False for a batch that somebody has made so that it cannot be."""
        try:
            self._accumulator.split(batch, self._config.compression_level)
        except (StorageError, ValueError):
            return False
        return True

    def _lose(self, link: _Link, error: ClientError) -> None:
        self._unregister(link)  # while it is open: else a copy in a forked process keeps it in the selector for good
        self._hear_out(link)
        self._cluster.doubt(link.connection.address)
        if self._config.acks == _NO_ANSWER:  # a broker has no other way to say that it leads no more
            self._cluster.expire_led_by(link.node)
        self._drop(link)
        self._return(link.requests, error)

    def _hear_out(self, link: _Link) -> None:
        """Where sending failed there may be answers that came before. What they acknowledge is not sent again: a broker
        that stops in good order answers first, and remembers only a producer's last batch when it is back."""
        with contextlib.suppress(ClientError):
            while link.requests and link.connection.has_answer():
                self._receive(link)
        link.connection.close()

    def _return(self, requests: Iterable[_Request], error: ClientError) -> None:
        """Requests without an answer: their batches may or may not be written."""
        now = self._clock()
        told: list[tuple[PendingBatch, Outcome]] = []
        with self.lock:
            for request in requests:
                for batch in request.batches.values():
                    self._cluster.expire(batch.place[0])
                    if not self._accumulator.is_in_flight(batch):
                        continue
                    if batch.promise.outcome is not None:
                        self._accumulator.give_up(batch)
                        told.append((batch, batch.promise.outcome))  # again: who waits for its memory is to hear of it
                    elif isinstance(error, Retriable) and batch.attempts <= self._config.retries:
                        self._accumulator.retry(batch, now, error)
                    else:
                        self._accumulator.give_up(batch)
                        told.append((batch, failure(batch, error, self._config.retries)))
            self._teller.decided(told)
        self._teller.tell(told)

    def _drop(self, link: _Link) -> None:
        self._links.pop(link.node, None)
        self._unregister(link)
        # Of a request a part may have left; and to authenticate again is for who opens another.
        if link.requests or link.connection.is_session_over:
            link.connection.close()
        self._cluster.pool.give(link.connection)

    def _unregister(self, link: _Link) -> None:
        key = self._selector.get_map().get(link.fileno)
        if key is not None and key.data is link:  # another may have its number by now
            self._selector.unregister(link.fileno)

    # Outcomes

    def _expired(self, batch: PendingBatch) -> Outcome:
        cause = f"not acknowledged within delivery.timeout.ms={self._config.delivery_timeout_ms}"
        last = self._accumulator.last_error(batch)
        return failed(batch, f"{cause}: {last}" if last else cause, last)

    def what_waits_longest(self) -> str:
        """With the lock held; for whoever finds no room."""
        oldest = self._accumulator.oldest()
        if oldest is None:
            return ""
        topic, partition = oldest.place
        error = self._accumulator.last_error(oldest)
        seconds = self._clock() - oldest.created
        return f"What waits longest, for {seconds:.1f} s, is for {topic}-{partition}" + (f": {error}" if error else "")

    def _fail_all(self, error: ClientError) -> None:
        self.fatal = error
        self.give_up_all(error)

    def give_up_all(self, error: ClientError) -> None:
        with self.lock:
            told = [(batch, failure(batch, error)) for batch in self._accumulator.batches()]
            for batch, _ in told:
                self._accumulator.give_up(batch)
            self._teller.decided(told)
        self._teller.tell(told)


_senders: "weakref.WeakSet[Sender]" = weakref.WeakSet()


def _fail_in_child() -> None:
    """A forked process has the producer without its thread, and its lock as it was at that moment: whoever sends there
    is told so, instead of waiting."""
    for sender in list(_senders):
        sender.lock = threading.Lock()
        sender.changed = threading.Condition(sender.lock)
        sender.is_orphan = True
        sender.fatal = MadeBeforeFork()


os.register_at_fork(after_in_child=_fail_in_child)
