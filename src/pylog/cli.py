"""The `pylog` command."""

import argparse
import asyncio
import shutil
import sys
from pathlib import Path

from pylog import segment_command


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pylog", description="A Kafka-compatible commit log, made for Spark.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serve = commands.add_parser("serve", help="run a broker", description="Run a broker until SIGTERM or Ctrl-C.")
    serve.add_argument(
        "--data", type=Path, action="append", default=[], metavar="DIR", help="where the logs are kept; may be repeated"
    )
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="short for listeners=PLAINTEXT://HOST:PORT, and wins over it; port 0 picks a free one (127.0.0.1:9092)",
    )
    serve.add_argument("--config", type=Path, metavar="FILE", help="a TOML file such as conf/broker.toml")
    serve.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one option; wins over the file")
    serve.add_argument(
        "--log-level", default="warning", choices=["debug", "info", "warning", "error"], help="(%(default)s)"
    )
    serve.add_argument("--log-format", default="text", choices=["text", "json"], help="(%(default)s)")
    serve.add_argument(
        "--metrics", metavar="HOST:PORT", help="serve /metrics for Prometheus, and /health, over HTTP (off)"
    )
    # For pylog.Broker: end with the process that started this one, and then remove the data.
    serve.add_argument("--stop-with-parent", action="store_true", help=argparse.SUPPRESS)
    serve.add_argument("--remove-data", action="store_true", help=argparse.SUPPRESS)
    segment_command.add_to(commands)
    given = parser.parse_args(arguments)
    if given.version:
        from pylog import __version__

        print(f"pylog {__version__}")
        return 0
    if given.command is None:
        parser.print_help()
        return 2
    return segment_command.run(given) if given.command == "segment" else _serve(given)


def _serve(given: argparse.Namespace) -> int:
    from pylog.broker_lite import listeners, log_format, server, watch
    from pylog.broker_lite.config import BrokerConfig, ConfigError
    from pylog.broker_lite.protocol.wire import MalformedFrame
    from pylog.storage.errors import StorageError

    log_format.configure(given.log_level, given.log_format)

    async def run() -> None:
        stop = asyncio.Event()
        if given.stop_with_parent:
            server.stop_with_parent(stop)
        await server.serve(config, _ready, stop, metrics=metrics, metrics_ready=_metrics_ready)

    try:
        metrics = None if given.metrics is None else watch.parse_address(given.metrics)
        listen = [] if given.listen is None else [f"listeners={listeners.short_form(given.listen)}"]
        config = BrokerConfig.load(given.config, [*given.set, *listen], given.data)
        asyncio.run(run())
    except (ConfigError, StorageError, MalformedFrame, OSError) as error:
        print(f"pylog: {error}", file=sys.stderr)
        return 1
    if given.remove_data:  # not after a start that failed: the next one may not
        for directory in given.data:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


def _metrics_ready(url: str) -> None:
    print(f"pylog metrics at {url}", flush=True)


def _ready(address: str) -> None:
    print(f"pylog broker listening on {address}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
