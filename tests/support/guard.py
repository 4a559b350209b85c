"""Run a command that must not outlive its owner: `python guard.py FOLDER COMMAND…`.

The owner holds the other end of stdin. A line "stop" there sends SIGTERM, "kill" sends SIGKILL; the end of stdin,
which comes also when the owner is killed, ends the command at once and removes FOLDER. The first line on stdout is
the command's process id; the exit code is the command's."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading


def main(folder: str, command: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the owner's to interpret
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    with contextlib.suppress(BrokenPipeError):
        print(child.pid, flush=True)

    orphaned = threading.Event()

    def obey() -> None:
        for line in sys.stdin:
            if line == "stop\n":
                child.terminate()
            elif line == "kill\n":
                child.kill()
        orphaned.set()
        child.kill()

    threading.Thread(target=obey, daemon=True).start()
    code = child.wait()
    if orphaned.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(code if code >= 0 else 128 - code)  # not sys.exit: that would wait for the thread's lock on stdin


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
