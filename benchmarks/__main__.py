"""`python -m benchmarks [PART …]`: run parts, print their tables, keep them in benchmarks/results/."""

import argparse
import importlib
import os
import signal
import sys
import time
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Options, say
from benchmarks.peers import PEER_UNAVAILABLE

PARTS = ("broker", "source", "sink", "storage")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="pylog beside its peers, in one run.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is named")
    parser.add_argument("--rounds", type=_count, help="that count, after one to warm up (each part has its own number)")
    parser.add_argument("--size", type=_count, metavar="BYTES", help="only values of this size: 100 or 1000")
    parser.add_argument("--scale", type=_factor, default=1.0, help="of the amounts of data, e.g. 0.1")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to keep the results (benchmarks/results, unless --size or --scale made the run a partial one)",
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    folder = given.out or (report.RESULTS if given.size is None and given.scale == 1.0 else None)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a broker starts from compiled modules, as an installed one does
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that brokers are stopped
    failures = sum(_run_part(name, given, folder) for name in PARTS if name in (given.parts or PARTS))
    if folder == report.RESULTS:
        report.refresh_docs()
    return 1 if failures else 0


def _run_part(name: str, given: argparse.Namespace, folder: Path | None) -> bool:
    """Whether something failed. What is merely missing is reported, and is no failure."""
    part = importlib.import_module(f"benchmarks.{name}")
    options = Options(given.rounds or part.ROUNDS, given.size, given.scale)
    say(f"{name}: {part.TITLE}")
    began = time.monotonic()
    machine = report.machine()
    try:
        outcome = part.run(options)
    except PEER_UNAVAILABLE as error:
        say(f"{name}: left out: {error}")
        return False
    except Exception as error:  # a part that cannot run does not keep the others from running
        say(f"{name}: FAILED: {type(error).__name__}: {error}")
        return True
    made = report.as_json(name, part.TITLE, options.rounds, machine, outcome)
    print(f"\n## {part.TITLE}\n\n{report.as_markdown(made)}", flush=True)
    if folder == report.RESULTS and outcome.skipped:
        say(f"{name}: not kept, for a peer is missing; --out DIR keeps it elsewhere")
    elif folder is not None:
        report.write(made, folder)
    say(f"{name}: {time.monotonic() - began:.0f} s")
    return any(result.failures for result in outcome.results)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


if __name__ == "__main__":
    sys.exit(main())
