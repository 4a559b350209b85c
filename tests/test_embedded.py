"""`pylog.Broker` and `pylog serve` as a user meets them: processes, directories, words."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest

import pylog
from pylog.embedded import BrokerFailed
from tests.support.foreign_clients import CLIENTS
from tests.support.probe import accepts

SERVE = [sys.executable, "-m", "pylog", "serve"]


def gone(condition, seconds=20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_it_leaves_nothing_behind():
    with pylog.Broker() as broker:
        pid, data, address = broker.pid, broker.data, broker.bootstrap_servers
        assert data.is_dir()
        assert accepts(address)
    assert not alive(pid)
    assert not data.exists()
    assert not accepts(address)


def test_it_keeps_a_directory_that_was_given(tmp_path):
    with pylog.Broker(tmp_path / "logs"):
        pass
    assert (tmp_path / "logs" / "meta.properties").is_file()


def test_several_directories_belong_to_one_broker(tmp_path):
    directories = [tmp_path / "first", tmp_path / "second"]
    with pylog.Broker(directories) as broker:
        assert broker.data == directories[0]
    found = [(directory / "meta.properties").read_text().splitlines() for directory in directories]
    assert found[0][:3] == found[1][:3]
    assert found[0][3] != found[1][3]
    with pytest.raises(BrokerFailed, match="belongs to node 1"):
        pylog.Broker([tmp_path / "third", directories[1]], config={"node.id": 2}).start()
    with pytest.raises(ValueError, match="`data`"):
        pylog.Broker(config={"log.dirs": str(tmp_path)})


def test_options_are_given_as_python_has_them():
    with pylog.Broker(config={"log.cleanup.policy": ["compact", "delete"], "delete.topic.enable": True}):
        pass
    with pytest.raises(BrokerFailed, match=r"log\.cleanup\.policy=compact,purge"):
        pylog.Broker(config={"log.cleanup.policy": ("compact", "purge")}).start()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], "log.dirs is not set", id="no directory"),
        pytest.param(["--data", "{0}", "--data", "{0}/x/.."], "has two names", id="one twice"),
        pytest.param(["--set", "log.dirs={0},{0}/x/.."], "has two names", id="one twice, as an option"),
    ],
)
def test_directories_that_cannot_be_are_refused(tmp_path, arguments, words):
    (tmp_path / "x").mkdir()
    told = [argument.format(tmp_path) for argument in arguments]
    done = subprocess.run([*SERVE, "--listen", "127.0.0.1:0", *told], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert words in done.stderr


def test_killed_and_started_again_it_has_the_same_address():
    with pylog.Broker() as broker:
        address = broker.bootstrap_servers
        broker.kill()
        assert not accepts(address)
        assert broker.data.is_dir()
        broker.start()
        assert broker.bootstrap_servers == address
        assert accepts(address)


def test_when_the_parent_is_killed_the_broker_stops_and_removes_its_data():
    program = (
        "import pylog, time; b = pylog.Broker().start(); print(b.pid, b.data, b.bootstrap_servers, flush=True);"
        " time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid, data, address = parent.stdout.readline().split()
    assert accepts(address)
    parent.kill()
    parent.wait()
    assert gone(lambda: not alive(int(pid)))
    assert not Path(data).exists()


def test_a_wrong_option_is_told_in_the_brokers_words():
    with pytest.raises(BrokerFailed, match=r"did you mean num\.partitions"):
        pylog.Broker(config={"num.partition": 3}).start()


def test_before_it_runs_it_says_so():
    with pytest.raises(RuntimeError, match=r"call start\(\)"):
        _ = pylog.Broker().bootstrap_servers


def test_a_second_broker_on_the_same_directory_gets_a_clear_error(tmp_path):
    with pylog.Broker(tmp_path), pytest.raises(BrokerFailed, match=str(tmp_path)):
        pylog.Broker(tmp_path).start()


def test_a_port_that_is_taken_gets_a_clear_error(tmp_path):
    with pylog.Broker() as broker:
        second = subprocess.run(
            [*SERVE, "--data", tmp_path, "--listen", broker.bootstrap_servers], capture_output=True, text=True
        )
    assert second.returncode == 1
    assert f"cannot listen at {broker._listen}: Address already in use" in second.stderr


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        pytest.param("9092", "must be host:port", id="no host"),
        pytest.param("localhost:x", "must be host:port", id="no number"),
        pytest.param("0.0.0.0:9092", "advertised.listeners=PLAINTEXT://HOST:9092", id="a wildcard"),
        pytest.param("[::]:9092", "advertised.listeners=PLAINTEXT://HOST:9092", id="a wildcard of IPv6"),
    ],
)
def test_an_address_that_cannot_be_is_refused(tmp_path, listen, words):
    done = subprocess.run([*SERVE, "--data", tmp_path, "--listen", listen], capture_output=True, text=True)
    assert done.returncode == 1
    assert words in done.stderr


def test_another_node_id_than_the_directorys_is_refused(tmp_path):
    with pylog.Broker(tmp_path):
        pass
    with pytest.raises(BrokerFailed, match="belongs to node 1"):
        pylog.Broker(tmp_path, config={"node.id": 2}).start()


def test_many_partitions_need_few_descriptors(tmp_path):
    partitions = 200
    limited = ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", *SERVE, "--data", tmp_path, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(limited, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[-1]
            client = CLIENTS["confluent-kafka"]
            client.create_topic(address, "t", partitions)
            producer = confluent_kafka.Producer({"bootstrap.servers": address})
            refused = []
            for value in (b"first", b"second"):
                for partition in range(partitions):
                    producer.produce(
                        "t", value, partition=partition, on_delivery=lambda error, _: error and refused.append(error)
                    )
                assert producer.flush(60) == 0
            assert not refused
            assert len(os.listdir(f"/proc/{process.pid}/fd")) < 100
            for partition in (0, partitions // 2, partitions - 1):
                records = client.consume(address, "t", 2, partition=partition)
                assert [record.value for record in records] == [b"first", b"second"]
        finally:
            process.terminate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_clean_stop(tmp_path, number):
    process = subprocess.Popen(
        [*SERVE, "--data", tmp_path, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().startswith("pylog broker listening on 127.0.0.1:")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_an_ipv6_address_works(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with pylog.Broker(listen="[::1]:0") as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")


def test_the_command_says_its_version():
    said = subprocess.run([sys.executable, "-m", "pylog", "--version"], capture_output=True, text=True).stdout
    assert said == f"pylog {pylog.__version__}\n"
