"""Spark reads and writes through TLS and SASL, and shows the user's secrets nowhere."""

import contextlib
import io
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pylog
from pylog.connector.client.jaas import OAUTH_MODULE, SCRAM_MODULE
from tests.support.certificates import Authority
from tests.support.sasl_servers import serve_oauthbearer, serve_scram
from tests.support.secured_proxy import SecuredProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "s3cret"
SCRAM = f'{SCRAM_MODULE} required username="alice" password="{PASSWORD}";'
Options = dict[str, str]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def proxy(authority: Authority) -> Iterator[SecuredProxy]:
    """Before a broker that tells its clients to come this way."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.broker.store)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    mechanisms = {
        "SCRAM-SHA-256": lambda: serve_scram("SCRAM-SHA-256", {"alice": PASSWORD}),
        "OAUTHBEARER": lambda: serve_oauthbearer({"token-of-alice"}, []),
    }
    with SecuredProxy(tls=context, mechanisms=mechanisms, session_lifetime_ms=2_000) as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap_servers}"}
        with socket.create_server(("127.0.0.1", 0)) as free:
            proxy.target = free.getsockname()[1]
        with pylog.Broker(listen=f"127.0.0.1:{proxy.target}", config=advertised):
            yield proxy


@pytest.fixture(scope="module")
def options(proxy: SecuredProxy, authority: Authority) -> Options:
    given = {
        "bootstrap.servers": proxy.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": authority.certificate.read_text(),
        "ssl.keystore.key": authority.client.key.read_text(),
        "ssl.keystore.certificate.chain": authority.client.certificate.read_text(),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": SCRAM,
    }
    return {f"kafka.{name}": value for name, value in given.items()}


@pytest.fixture(scope="module")
def topic(spark: "SparkSession", options: Options) -> str:
    rows = spark.range(500).selectExpr("cast(id as string) as value")
    rows.write.format("pylog").options(**options).option("topic", "secured").mode("append").save()
    return "secured"


def source(reader: Any, options: Options, topic: str) -> Any:
    return reader.format("pylog").options(**options).option("subscribe", topic)


def test_a_batch_is_written_and_read(spark: "SparkSession", proxy: SecuredProxy, options: Options, topic: str) -> None:
    assert source(spark.read, options, topic).load().select("value").distinct().count() == 500
    assert set(proxy.authentications) == {"SCRAM-SHA-256"}


def test_a_stream_is_read_and_written(spark: "SparkSession", options: Options, topic: str, tmp_path: Path) -> None:
    rows = source(spark.readStream, options, topic).option("startingOffsets", "earliest").load()
    writer = rows.select("value").writeStream.format("pylog").options(**options).option("topic", "copied")
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert source(spark.read, options, "copied").load().count() == 500
    kept = "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    assert topic in kept
    for secret in secrets_of(options):
        assert secret not in kept


def test_tokens_come_from_a_function_in_python(spark: "SparkSession", options: Options, topic: str) -> None:
    bearer = {
        **options,
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f'{OAUTH_MODULE} required who="alice";',
        "kafka.sasl.oauthbearer.token.provider": "tests.support.token_provider:token",
    }
    assert source(spark.read, bearer, topic).load().count() == 500


def secrets_of(options: Options) -> list[str]:
    return [PASSWORD, options["kafka.ssl.keystore.key"].split("\n")[1]]


@pytest.mark.parametrize("mode", ["simple", "extended", "codegen", "cost", "formatted"])
def test_no_plan_shows_a_secret(spark: "SparkSession", options: Options, topic: str, mode: str) -> None:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        source(spark.read, options, topic).load().explain(mode)
    assert "pylog" in shown.getvalue()
    for secret in secrets_of(options):
        assert secret not in shown.getvalue()


def test_neither_progress_nor_plan_of_a_stream_shows_one(
    spark: "SparkSession", options: Options, topic: str, tmp_path: Path
) -> None:
    rows = source(spark.readStream, options, topic).option("startingOffsets", "earliest").load()
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        query.explain(extended=True)
    assert query.recentProgress
    for secret in secrets_of(options):
        assert secret not in shown.getvalue() + str(query.recentProgress)


def wrong_user(options: Options) -> Options:
    return {**options, "kafka.sasl.jaas.config": SCRAM.replace("alice", "mallory")}


def no_quotes(options: Options) -> Options:
    return {**options, "kafka.sasl.jaas.config": SCRAM.replace('"', "").replace("password=", "password=my ")}


def no_module(options: Options) -> Options:
    return {**options, "kafka.sasl.jaas.config": PASSWORD}


def another_key(options: Options) -> Options:
    return {**options, "kafka.ssl.keystore.key": options["kafka.ssl.keystore.key"].replace("M", "N")}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        pytest.param(wrong_user, "does not let this client in", id="a user that is not there"),
        pytest.param(no_quotes, "kafka.sasl.jaas.config must have options as", id="a password without quotes"),
        pytest.param(no_module, "kafka.sasl.jaas.config must begin with a login module", id="a password alone"),
        pytest.param(another_key, "ssl.keystore.* cannot be used", id="a key that is damaged"),
    ],
)
@pytest.mark.parametrize("kind", ["batch", "stream", "sink"])
def test_no_error_of_a_failing_query_shows_one(
    spark: "SparkSession",
    options: Options,
    topic: str,
    tmp_path: Path,
    broken: Callable[[Options], Options],
    says: str,
    kind: str,
) -> None:
    given = broken(options)

    def run() -> None:
        if kind == "batch":
            source(spark.read, given, topic).load().collect()
        elif kind == "sink":
            rows = spark.range(5).selectExpr("cast(id as string) as value")
            rows.write.format("pylog").options(**given).option("topic", topic).mode("append").save()
        else:
            writer = source(spark.readStream, given, topic).load().writeStream.format("noop")
            writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    with pytest.raises(Exception) as raised:  # noqa: PT011
        run()
    assert says in str(raised.value)
    for secret in secrets_of(given):
        assert secret not in f"{raised.value} {raised.value!r}"
