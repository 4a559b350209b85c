import shutil
import subprocess

import pytest

from tests.support.foreign_clients import CLIENTS, ForeignRecord

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def kcat(*arguments: str, text: str = "") -> str:
    done = subprocess.run(["kcat", *arguments], input=text, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_kcat_lists_writes_and_reads(servers: str) -> None:
    assert f"at {servers}" in kcat("-b", servers, "-L")
    kcat("-b", servers, "-t", "cat", "-p", "0", "-P", "-K:", "-z", "lz4", text="k:v\nk2:v2\n")
    assert kcat("-b", servers, "-t", "cat", "-p", "0", "-C", "-o", "beginning", "-e", "-q", "-f", "%k=%s\n") == (
        "k=v\nk2=v2\n"
    )
    CLIENTS["kafka-python"].produce(servers, "cat", [ForeignRecord(b"a", b"b", (), 1)], codec="zstd")
    assert kcat("-b", servers, "-t", "cat", "-p", "0", "-C", "-o", "2", "-e", "-q", "-f", "%k=%s\n") == "a=b\n"
