"""`pylog segment dump` and `pylog segment verify`: look into the files of a log, of pylog's or of Apache Kafka's.

Both only read and take no lock. What scripts go by: rows and findings are lines on standard output, complaints about
the command are on standard error, and the exit code says how it ended.
"""

import argparse
import base64
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylog.storage.inspect.dump import Row
    from pylog.storage.inspect.findings import Finding, Report

SOUND, DAMAGED, UNUSABLE, TORN = range(4)
_PIPE_CLOSED = 128 + 13  # as a shell reports a program that wrote to nobody

_DUMP_HELP = """\
Print what the files of a log hold, in the words of Kafka's DumpLogSegments.

PATH is a file (.log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint,
partition.metadata, an offset checkpoint), the directory of a partition, or a data directory."""
_DUMP_EXIT = """\
exit codes:
  0  everything could be read
  1  something is damaged: it has a line of its own, or a batch says isvalid: false
  2  wrong usage, or PATH is not there or nothing that belongs to a log"""
_VERIFY_HELP = """\
Check what can be checked, and change nothing: batches (framing, CRC, offsets, leader epochs),
indexes against batches, aborted transactions against their markers, snapshots, checkpoints
against the logs. One line for each finding: file, byte, offsets, what is wrong.

PATH is a file, the directory of a partition, or a data directory. No lock is taken; what a
running broker is writing at this moment may be reported as a torn tail."""
_VERIFY_EXIT = """\
exit codes:
  0  sound
  1  damage: what was written is not there any more, or cannot be found
  2  wrong usage, or PATH is not there or nothing that belongs to a log
  3  a torn tail and no damage: what a stop in the middle of a write leaves, and the next
     start cuts off or builds anew"""


def add_to(commands: Any) -> None:
    segment = commands.add_parser("segment", help="look into the files of a log", description=__doc__)
    actions = segment.add_subparsers(dest="action", metavar="ACTION", required=True)
    dump = _parser(actions, "dump", "print batches, records, indexes, checkpoints", _DUMP_HELP, _DUMP_EXIT)
    dump.add_argument("--deep-iteration", action="store_true", help="a line for each record, without its key and value")
    dump.add_argument(
        "--records", "--print-data-log", action="store_true", help="a line for each record, with key and value"
    )
    verify = _parser(actions, "verify", "check batches, indexes and checkpoints", _VERIFY_HELP, _VERIFY_EXIT)
    verify.add_argument("--deep", action="store_true", help="also decompress and decode every record")


def _parser(actions: Any, name: str, short: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=short,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    return parser


def run(given: argparse.Namespace) -> int:
    from pylog.storage.inspect.names import NotALog

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name or a key may be anything
    try:
        code = _dump(given) if given.action == "dump" else _verify(given)
        sys.stdout.flush()
    except (NotALog, PermissionError, NotADirectoryError) as error:
        print(f"pylog: {error}", file=sys.stderr)
        return UNUSABLE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at its end
        return _PIPE_CLOSED
    return code


def _dump(given: argparse.Namespace) -> int:
    from pylog.storage.inspect.dump import Detail, dump, text

    code = SOUND
    for row in dump(given.path, Detail(records=given.records or given.deep_iteration, data=given.records)):
        if row.kind == "damage" or row.fields.get("isvalid") is False:
            code = DAMAGED
        print(_json(dict(_json_fields(row))) if given.json else text(row))
    return code


def _json_fields(row: "Row") -> Iterator[tuple[str, Any]]:
    from pylog.storage.inspect.dump import Optional

    yield "kind", row.kind
    for name, value in row.fields.items():
        match value:
            case Optional(number):
                yield name, number
            case bytes():
                yield _json_bytes(name, value)
            case tuple():
                yield name, [dict([("key", key), _json_bytes("value", data)]) for key, data in value]
            case _:
                yield name, value


def _json_bytes(name: str, data: bytes | None) -> tuple[str, str | None]:
    """Text where it is text; otherwise base64, under a name that says so."""
    if data is None:
        return name, None
    try:
        return name, data.decode()
    except UnicodeDecodeError:
        return f"{name}Base64", base64.b64encode(data).decode()


def _verify(given: argparse.Namespace) -> int:
    from pylog.storage.inspect.deep import SHALLOW, deep
    from pylog.storage.inspect.findings import Report, Severity
    from pylog.storage.inspect.verify import verify

    report = Report(lambda finding: print(_json(_finding(finding)) if given.json else finding))
    verify(given.path, report, deep() if given.deep else SHALLOW)
    print(_json(_summary(report, given.path)) if given.json else _summary_line(report, given.path))
    return {None: SOUND, Severity.DAMAGE: DAMAGED, Severity.TORN: TORN}[report.verdict]


def _finding(finding: "Finding") -> dict[str, Any]:
    return {
        "kind": finding.severity.value,
        "file": str(finding.path),
        "position": finding.position,
        "firstOffset": finding.first_offset,
        "lastOffset": finding.last_offset,
        "message": finding.message,
    }


def _summary(report: "Report", path: Path) -> dict[str, Any]:
    counts = {severity.value: count for severity, count in report.found.items()}
    return {
        "kind": "summary",
        "path": str(path),
        "verdict": "sound" if report.verdict is None else report.verdict.value,
        "partitions": report.partitions,
        "files": report.files,
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "bytes": report.log_bytes,
        "findings": counts,
    }


def _summary_line(report: "Report", path: Path) -> str:
    seen = f"{report.batches} batches, {report.records} records, {report.log_bytes} bytes of log"
    if report.partitions:
        seen = f"{report.partitions} partitions, {report.segments} segments, {seen}"
    verdict = "sound" if report.verdict is None else report.verdict.value
    return f"{path}: {verdict} ({seen})"


def _json(value: Any) -> str:
    import json  # here: `pylog serve` loads this file, too, and has no use for it

    return json.dumps(value)
