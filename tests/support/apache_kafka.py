"""A real Apache Kafka, one KRaft node on 127.0.0.1, for as long as a `with` lasts.

It keeps its ports and data over kill() and start(), and leaves neither process nor file behind, also when the
process that owns it is killed: a guard process is its parent and ends it when the owner's pipe closes."""

import base64
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.support.java_tools import java_class_command
from tests.support.ports import free_ports
from tests.support.probe import wait_until_answers

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
START_ATTEMPTS_MAX = 3
_GUARD = Path(__file__).with_name("guard.py")

# For one that is to be back soon after a kill: until its old registration ends it may not come back.
SOON_BACK = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "5000"}
# For one that compacts at once, expires nothing, and has few partitions of its own.
QUICK = {
    "log.cleaner.backoff.ms": "50",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class ApacheKafkaFailed(Exception):
    """The server did not start; the message ends with the tail of its log."""


class ApacheKafka:
    """`with ApacheKafka() as kafka: kafka.bootstrap_servers`; `properties` are added to server.properties.

    `listeners` are security protocols of listeners besides that of PLAINTEXT: `servers("SASL_SSL")` is one's address.
    `format_arguments` are for `kafka-storage format`."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        heap: str = "512m",
        listeners: Sequence[str] = (),
        format_arguments: Sequence[str] = (),
    ) -> None:
        self._properties = dict(properties or {})
        self._listeners = ("PLAINTEXT", *listeners, "CONTROLLER")
        self._format_arguments = format_arguments
        self._heap = heap
        self._folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._guard: subprocess.Popen[str] | None = None
        self._ports: Mapping[str, int] = {}  # by listener
        self._used = False
        self.cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
        self.pid = 0  # of the JVM itself, for whoever measures it

    @property
    def bootstrap_servers(self) -> str:
        return self.servers("PLAINTEXT")

    def servers(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def log(self) -> Path:
        return self._folder / "server.log"

    def start(self) -> None:
        """Start (again, on the same data) and return when it answers."""
        if self._guard is not None:
            raise RuntimeError("already started")
        if self._used:  # a restart: clients know the ports, they stay
            self._launch()
            return
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            self.prepare()
            try:
                self._launch()
            except ApacheKafkaFailed as error:
                # Between asking for a free port and its use somebody else may have taken it.
                if attempt == START_ATTEMPTS_MAX or "in use" not in str(error):
                    raise
                shutil.rmtree(self.data)
            else:
                self._used = True
                return

    def prepare(self) -> None:
        """Choose ports and format the data folder; start() does it, unless whoever times a start did so before."""
        if not self.data.exists():
            self._ports = dict(zip(self._listeners, free_ports(len(self._listeners)), strict=True))
            self._format()

    def kill(self) -> None:
        """End the JVM at once (SIGKILL); what it did not fsync is still in the page cache, as after a crash."""
        if self._guard is None:
            return
        self._tell("kill")
        self._reap()

    def stop(self) -> None:
        """A clean stop (SIGTERM); killed if it takes longer than a minute."""
        if self._guard is None:
            return
        self._tell("stop")
        try:
            self._guard.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._tell("kill")
        self._reap()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "ApacheKafka":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _format(self) -> None:
        listeners = [f"{name}://{self.servers(name)}" for name in self._listeners]
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.servers('CONTROLLER')}",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(listeners[:-1]),
            "controller.listener.names": "CONTROLLER",
            **self._protocols,
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._properties,
        }
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        self._configuration.write_text("".join(lines))
        command = java_class_command(
            "kafka.tools.StorageTool",
            *("format", "-t", self.cluster_id, "-c", str(self._configuration), *self._format_arguments),
            heap="128m",
        )
        spoken = {**os.environ, "LC_ALL": "C.UTF-8"}  # else Java reads letters beyond ASCII as question marks
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=spoken)
        if done.returncode != 0:
            raise ApacheKafkaFailed(f"formatting failed:\n{done.stdout}{done.stderr}")

    @property
    def _protocols(self) -> dict[str, str]:
        """Kafka's default is enough for listeners that are called after their protocol, and is left for tests to see;
        only beside other protocols than PLAINTEXT it does not know the controller's."""
        if self._listeners == ("PLAINTEXT", "CONTROLLER"):
            return {}
        names = (f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in self._listeners)
        return {"listener.security.protocol.map": ",".join(names)}

    @property
    def _configuration(self) -> Path:
        return self._folder / "server.properties"

    def _launch(self) -> None:
        command = java_class_command(
            "kafka.Kafka",
            str(self._configuration),
            heap=self._heap,
            options=("-Dlog4j2.level=INFO", "-Djava.awt.headless=true"),
        )
        with self.log.open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(self._folder), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # A Ctrl-C in the terminal must not stop it before its users. But no session of its own: Linux shares
                # the processors out by session, and it is measured beside a broker that has none.
                process_group=0,
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())
        guard = self._guard
        # Kafka opens its listeners one after the other: the first may answer before the last is open.
        others = [self.servers(name) for name in self._listeners[1:-1]]
        if not wait_until_answers(
            self.bootstrap_servers, lambda: guard.poll() is None, START_SECONDS_MAX, also_open=others
        ):
            self.kill()
            tail = self.log.read_text(errors="replace")[-4000:]
            asked = ", ".join([self.bootstrap_servers, *others])
            raise ApacheKafkaFailed(f"Apache Kafka does not answer on {asked}; its log ends:\n{tail}")

    def _tell(self, word: str) -> None:
        assert self._guard is not None
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone already
            self._guard.stdin.write(f"{word}\n")
            self._guard.stdin.flush()

    def _reap(self) -> None:
        """The JVM is ending: wait for its guard, which ends with it (and only afterwards close the guard's stdin)."""
        guard, self._guard = self._guard, None
        assert guard is not None
        assert guard.stdin is not None
        assert guard.stdout is not None
        guard.wait()
        guard.stdin.close()
        guard.stdout.close()
