"""The Java producer, whose connections are cut again and again, writes every record once, in order, to our broker."""

import random

from tests.support.cutting_proxy import BEFORE, BEHIND, MIDDLE, broker_behind_a_proxy
from tests.support.foreign_clients import CLIENTS
from tests.support.java_tools import CONSOLE_PRODUCER, run_kafka_tool

COUNT = 400
SETTINGS = (
    "enable.idempotence=true",
    "batch.size=64",
    "linger.ms=0",
    "reconnect.backoff.ms=1",
    "reconnect.backoff.max.ms=10",
)


def test_every_record_is_there_once_and_in_order() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    lines = [f"{number}" for number in range(COUNT)]
    with broker_behind_a_proxy(seed) as (broker, proxy):
        reader = CLIENTS["confluent-kafka"]
        reader.create_topic(broker.bootstrap_servers, "t", 1)
        run_kafka_tool(
            CONSOLE_PRODUCER,
            *("--bootstrap-server", f"127.0.0.1:{proxy.port}", "--topic", "t"),
            *("--message-send-max-retries", "100000", "--retry-backoff-ms", "10"),
            *(argument for one in SETTINGS for argument in ("--command-property", one)),
            said="\n".join(lines),
        )
        _, high = reader.range(broker.bootstrap_servers, "t")
        found = reader.consume(broker.bootstrap_servers, "t", high)
        assert [one.value for one in found] == [line.encode() for line in lines]
        assert min(proxy.cuts[cut] for cut in (BEFORE, MIDDLE, BEHIND)) > 0, proxy.cuts
