"""A broker starts in a fraction of a second and idles in little memory because it never loads what is heavy."""

import re
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from tests.support.probe import answers

HEAVY = {"numba", "numpy", "pyarrow", "pyspark", "pandas", "llvmlite"}


def test_a_broker_that_started_and_took_records_has_imported_nothing_heavy(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "pylog", "serve"]
    command += ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with (tmp_path / "imports").open("w+") as imports:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=imports, text=True) as broker:
            try:
                assert broker.stdout is not None
                address = broker.stdout.readline().split()[-1]
                assert answers(address, timeout_s=10)
                for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                    producer = Producer({"bootstrap.servers": address, "compression.type": codec})
                    producer.produce(codec, b"value" * 1000)
                    assert producer.flush(30) == 0
            finally:
                broker.terminate()
        imports.seek(0)
        loaded = set(re.findall(r"^import time:.*\|\s*([\w.]+)$", imports.read(), re.MULTILINE))
    assert "pylog.broker_lite.server" in loaded  # else the report was not read
    assert not {name.split(".")[0] for name in loaded} & HEAVY
