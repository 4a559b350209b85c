"""A broker for a notebook, a test or a demo: a child process on a temporary directory.

It leaves nothing behind. The child holds the reading end of a pipe; when the parent ends, even by
kill -9, the pipe closes, and the child stops and removes the directory.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

_READY = "pylog broker listening on "
_METRICS_READY = "pylog metrics at "
_STOP_SECONDS = 30


class BrokerFailed(RuntimeError):
    """The broker process ended before it accepted connections; the message is what it said."""


class Broker:
    """`config` has Kafka's names (`{"num.partitions": 4}`). With `data`, one directory or several, the data is kept.
    With `metrics` ("127.0.0.1:0") there is a `metrics_url`. `listeners` in the configuration stand for `listen`."""

    def __init__(
        self,
        data: str | Path | Sequence[str | Path] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        config: Mapping[str, Any] | None = None,
        metrics: str | None = None,
    ) -> None:
        if config is not None and "log.dirs" in config:
            raise ValueError("log.dirs: name the directories with `data`")
        self._owner = os.getpid()
        self._temporary = data is None
        if data is None:
            data = tempfile.mkdtemp(prefix="pylog-")
        self.directories = [Path(one) for one in ([data] if isinstance(data, str | Path) else data)]
        if not self.directories:
            raise ValueError("data: name one directory at least")
        self._listen = listen
        self._metrics = metrics
        self.metrics_url: str | None = None
        self._config = dict(config or {})
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as this object)

    @property
    def data(self) -> Path:
        """The data directory; the first, if there are several."""
        return self.directories[0]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`; stays the same over `kill` and `start`."""
        if self._process is None:
            raise RuntimeError("the broker is not running: use it in a with statement, or call start()")
        return self._listen

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> "Broker":
        if self._process is not None:
            raise RuntimeError("the broker is running already")
        command = [sys.executable, "-m", "pylog", "serve"]
        command += [] if "listeners" in self._config else ["--listen", self._listen]
        command += [argument for directory in self.directories for argument in ("--data", str(directory))]
        command += ["--stop-with-parent"] + (["--remove-data"] if self._temporary else [])
        command += [] if self._metrics is None else ["--metrics", self._metrics]
        for name, value in self._config.items():
            command += ["--set", f"{name}={_text_of(value)}"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,  # a file, not a pipe: nobody reads along, and a full pipe would block the broker
            process_group=0,  # Ctrl-C in a terminal is for the parent
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if line.startswith(_METRICS_READY):
            self.metrics_url = line.removeprefix(_METRICS_READY).strip()
            self._metrics = self.metrics_url.removeprefix("http://")  # the same after `kill` and `start`
            line = process.stdout.readline()
        if not line.startswith(_READY):
            process.communicate()
            raise BrokerFailed(self.log.strip() or "the broker ended without a word")
        self._process = process
        self._listen = line.removeprefix(_READY).strip()
        return self

    def create_topic(self, name: str | None = None, partitions: int = -1, **configs: Any) -> str:
        """Its name, one that no other topic has unless one is given. -1: `num.partitions`. Options of the topic have
        Kafka's names: `create_topic(partitions=4, **{"retention.ms": 60_000})`."""
        from pylog.connector.client.cluster import Cluster
        from pylog.connector.client.config import ClientConfig

        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        texts = {key: _text_of(value) for key, value in configs.items()}
        cluster = Cluster(ClientConfig.parse({"bootstrap.servers": self.bootstrap_servers}))
        try:
            cluster.create_topic(name, partitions, configs=texts)
        finally:
            cluster.pool.close()
        return name

    @property
    def log(self) -> str:
        """What the broker has logged so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def kill(self) -> None:
        """As a crash does it (kill -9). What was acknowledged is there after `start`."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Cleanly. A temporary directory goes with it."""
        self._end(signal.SIGTERM)
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def __enter__(self) -> "Broker":
        return self.start() if self._process is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if os.getpid() == self._owner:  # not in a forked child that lets go of its copy
                self.stop()
                self._log.close()


def _text_of(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
