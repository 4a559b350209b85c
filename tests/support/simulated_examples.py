"""Small states of the simulated file system, and all that a crash of the machine can leave of them."""

from pathlib import Path

from tests.support.simulated_files import SimulatedFiles

SEEDS = range(400)  # enough to see every outcome that is listed below
ROOT = Path("/sim")
A, B, C = ROOT / "a", ROOT / "b", ROOT / "c"
D = ROOT / "d"

Tree = dict[str, bytes | None]


def with_synced(**contents: bytes) -> SimulatedFiles:
    files = SimulatedFiles()
    for name, data in contents.items():
        files.write_at(ROOT / name, 0, data)
    files.sync_all()
    return files


def outcomes(files: SimulatedFiles) -> list[Tree]:
    """All that a crash of the machine can leave."""
    found: list[Tree] = []
    for seed in SEEDS:
        tree = files.after_machine_crash(seed).tree()
        if tree not in found:
            found.append(tree)
    return found


def contents_of_a(files: SimulatedFiles) -> set[bytes | None]:
    return {tree["a"] for tree in outcomes(files)}


def workload(files: SimulatedFiles) -> None:
    """Every kind of step, synced and not."""
    files.make_directory(D)
    files.create_empty(D / "log")
    appender = files.open_appender(D / "log")
    for number in range(4):
        appender.append(bytes([number]) * 300, number * 300)
    appender.sync()
    files.replace(D / "checkpoint", b"first", durable=True)
    appender.append(b"." * 700, 1200)
    files.write_at(D / "index", 0, b"#" * 16)
    files.replace(D / "checkpoint", b"second", durable=False)
    files.rename(D / "log", D / "log.deleted")
    files.truncate(D / "index", 8)
    files.remove(D / "log.deleted")
    files.rename(D, ROOT / "d.deleted")
    files.remove_tree(ROOT / "d.deleted")
