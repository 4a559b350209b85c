"""sasl.jaas.config through Kafka's own parser and through ours: the same options, the same refusals."""

import base64
import random
import subprocess
from pathlib import Path

from pylog.connector.client.jaas import PLAIN_MODULE, parse_jaas
from tests.support.jaas_rows import READ, REFUSED
from tests.support.jars import kafka_classpath
from tests.support.java import java_command

PROBE = Path(__file__).with_name("JaasProbe.java")
RANDOM_COUNT = 50_000
PIECES = [
    *("required", "username", "password", "=", "=", "=", ";", ";", '"', '"', '"', "'", "\\", "\\", '\\"', " ", " "),
    *("\n", "\r", "\t", "//", "/*", "*/", "/", "-", ".", "$", "_", "1", "7", "377", "400", "n", "x", "ü", "日", "#"),
    *(' a="b" ', " c='d' ", ' e="f', ' g=h ', "\x80", "\x9f", "\xa0"),
]  # fmt: skip


def by_kafka(texts: list[str]) -> list[str]:
    lines = "".join(base64.b64encode(text.encode()).decode() + "\n" for text in texts)
    command = [java_command(), "-Xmx256m", "-cp", kafka_classpath(), str(PROBE)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=200, check=True)
    return [line.removeprefix("= ") for line in done.stdout.splitlines() if line.startswith("= ")]


def by_us(text: str) -> str:
    try:
        options = parse_jaas(text).options
    except ValueError:
        return "refused"
    by_name = sorted(options.items(), key=lambda pair: pair[0].encode("utf-16-be"))  # the order of Java's strings
    return " ".join(["read", *(f"{_encoded(name)}={_encoded(value.reveal())}" for name, value in by_name)])


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_both_read_the_same() -> None:
    rng = random.Random(7)
    texts = [f"{PLAIN_MODULE} {text}" for _, text, _ in READ] + [text for _, text in REFUSED]
    for _ in range(RANDOM_COUNT):
        middle = "".join(rng.choices(PIECES, k=rng.randint(0, 12)))
        texts.append(f"{PLAIN_MODULE} required {middle}{rng.choice([';', '', ' ;'])}")
    ours = [by_us(text) for text in texts]
    assert sum(answer != "refused" for answer in ours) > RANDOM_COUNT // 20
    differing = [
        (text, kafkas, our) for text, kafkas, our in zip(texts, by_kafka(texts), ours, strict=True) if kafkas != our
    ]
    assert differing == []
