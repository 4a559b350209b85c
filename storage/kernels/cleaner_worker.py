"""`python -m pylog.storage.kernels.cleaner_worker`: a plan comes from stdin, its result goes to stdout (see
`pylog.storage.cleaner_process`, the other side). Ends when stdin does."""

import json
import os
import sys
import threading
import traceback

from pylog.storage.cleaner_process import error_to_json
from pylog.storage.compaction import CleaningPlan

_NICE = 10


def main() -> None:
    os.nice(_NICE)  # brokers first
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # the parent is gone already
    threading.Thread(target=_listen, daemon=True).start()
    try:
        from pylog.storage.kernels.cleaner import clean  # may have to be compiled first, which takes a while

        _say(result=clean(CleaningPlan.from_json(line)))
    except Exception as error:
        traceback.print_exc()
        _say(error=error_to_json(error))


def _listen() -> None:
    """Nothing more comes but the end."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _say(**answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
