"""The options of TLS and SASL: what goes together, what is refused, and that secrets are seen nowhere."""

import logging
import pickle
import traceback
from dataclasses import replace

import pytest

from pylog.broker_lite.protocol.sasl_authenticate import SaslAuthenticateRequest
from pylog.connector.client.config import OPTIONS, ClientConfig
from pylog.connector.client.errors import ConfigError
from pylog.connector.client.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from pylog.connector.client.secret import Secret

SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}
TLS = {**SERVERS, "security.protocol": "SSL"}
SASL = {**SERVERS, "security.protocol": "SASL_SSL"}
PLAIN = {**SASL, "sasl.mechanism": "PLAIN"}
OAUTH = {**SASL, "sasl.mechanism": "OAUTHBEARER"}
LOGIN = f'{PLAIN_MODULE} required username="alice" password="s3cret";'
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": "https://idp/token"}
PROVIDER = {"sasl.oauthbearer.token.provider": "mine:token"}
KAFKAS_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as refused:
        ClientConfig.parse(options)
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))
    return str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(
            {**SERVERS, "sasl.jaas.config": LOGIN},
            "sasl.jaas.config has no effect with security.protocol=PLAINTEXT: set that to SASL_PLAINTEXT or SASL_SSL",
            id="a login that nobody asks for",
        ),
        pytest.param(
            {**SERVERS, "security.protocol": "SASL_PLAINTEXT", "ssl.truststore.location": "x"},
            "ssl.truststore.location has no effect with security.protocol=SASL_PLAINTEXT: set that to SSL or SASL_SSL",
            id="trust that nobody asks for",
        ),
        pytest.param({**TLS, "sasl.mechanism": "PLAIN"}, "sasl.mechanism has no effect", id="a mechanism without SASL"),
        pytest.param(SASL, "sasl.mechanism is required", id="no mechanism"),
        pytest.param({**SASL, "sasl.mechanism": "GSSAPI"}, "Kerberos", id="Kerberos"),
        pytest.param({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, "cannot be AWS_MSK_IAM: use", id="Amazon's"),
        pytest.param({**SASL, "sasl.mechanism": "DIGEST-MD5"}, "must be one of PLAIN, SCRAM", id="another mechanism"),
        pytest.param(PLAIN, "sasl.jaas.config is required with sasl.mechanism=PLAIN: org.apache", id="no login"),
        pytest.param({**PLAIN, "sasl.jaas.config": "s3cret"}, "sasl.jaas.config must begin", id="a bare password"),
        pytest.param(
            {**PLAIN, "sasl.jaas.config": f"{PLAIN_MODULE} required username=a password=my s3cret;"},
            "sasl.jaas.config must have options",
            id="a password that is not in quotes",
        ),
        pytest.param(
            {**PLAIN, "sasl.jaas.config": f'{PLAIN_MODULE} required username="a";'}, "username and password", id="half"
        ),
        pytest.param(
            {**PLAIN, "sasl.jaas.config": LOGIN.replace(";", ' s3cret="x";')}, "and no others", id="an unknown option"
        ),
        pytest.param(
            {**PLAIN, "sasl.jaas.config": f"{OAUTH_MODULE} required;"}, "login module of OAUTHBEARER", id="another's"
        ),
        pytest.param({**PLAIN, "sasl.username": "a"}, "in sasl.jaas.config", id="librdkafka's name"),
        pytest.param({**PLAIN, "sasl.password": "s3cret"}, "in sasl.jaas.config", id="librdkafka's other name"),
        pytest.param({**PLAIN, "sasl.jaas.confg": LOGIN}, "did you mean sasl.jaas.config?", id="a slip"),
        pytest.param(
            {**PLAIN, "sasl.jaas.config": LOGIN, **PROVIDER}, "only with OAUTHBEARER", id="a token without OAUTHBEARER"
        ),
        pytest.param(OAUTH, "sasl.oauthbearer.token.provider (module:function) or", id="no source of tokens"),
        pytest.param({**OAUTH, "sasl.jaas.config": LOGIN, **PROVIDER}, "must have the login module", id="no module"),
        pytest.param({**OAUTH, **PROVIDER, **ENDPOINT}, "one must do", id="two sources"),
        pytest.param({**OAUTH, **ENDPOINT}, "clientId and clientSecret", id="an endpoint and no secret"),
        pytest.param(
            {
                **OAUTH,
                **ENDPOINT,
                "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="a" clientSecret="s3cret" s3cret="x";',
            },
            "no other options",
            id="an endpoint and something else",
        ),
        pytest.param(
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "http://idp/token"}, "begins with https", id="no TLS"
        ),
        pytest.param(
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://me:s3cret@idp/"},
            "(it is 'https://[hidden]@idp/')",
            id="a password in an address",
        ),
        pytest.param(
            {**OAUTH, "sasl.oauthbearer.token.provider": "token"}, "must be module:function", id="no module of Python's"
        ),
        pytest.param(
            {**OAUTH, "sasl.login.callback.handler.class": "com.example.Handler"},
            "set sasl.oauthbearer.token.provider=module:function",
            id="a class of the JVM",
        ),
        pytest.param(
            {**OAUTH, "sasl.login.callback.handler.class": KAFKAS_HANDLER},
            "sasl.oauthbearer.token.endpoint.url is required",
            id="Kafka's class without its endpoint",
        ),
        pytest.param({**TLS, "ssl.truststore.type": "JKS"}, "only PEM is supported; make it so: keytool", id="JKS"),
        pytest.param({**TLS, "ssl.keystore.type": "PKCS12"}, "openssl pkcs12", id="PKCS12"),
        pytest.param({**TLS, "ssl.truststore.password": "s3cret"}, "in PEM has none", id="a truststore's password"),
        pytest.param({**TLS, "ssl.keystore.password": "s3cret"}, "ssl.key.password", id="a keystore's password"),
        pytest.param(
            {**TLS, "ssl.truststore.location": "x", "ssl.truststore.certificates": "s3cret"}, "one must do", id="both"
        ),
        pytest.param(
            {**TLS, "ssl.keystore.location": "x", "ssl.keystore.key": "s3cret"}, "one must do", id="both keys"
        ),
        pytest.param({**TLS, "ssl.keystore.key": "s3cret"}, "are needed both", id="a key without a certificate"),
        pytest.param({**TLS, "ssl.key.password": "s3cret"}, "has no effect without", id="a password for no key"),
        pytest.param({**TLS, "ssl.key.password": ""}, "ssl.key.password must not be empty", id="an empty password"),
        pytest.param({**TLS, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "older ones are not safe", id="an old TLS"),
        pytest.param({**TLS, "ssl.protocol": "SSLv3"}, "ssl.protocol must be one of", id="an older one"),
        pytest.param({**TLS, "ssl.endpoint.identification.algorithm": "ldaps"}, "must be one of https", id="LDAP"),
        pytest.param({**TLS, "ssl.provider": "BC"}, "Python's, not the JVM's", id="a provider of the JVM"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name_and_without_its_secrets(
    options: dict[str, str], says: str
) -> None:
    assert says in refusal(options)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(TLS, id="TLS alone"),
        pytest.param({**PLAIN, "sasl.jaas.config": LOGIN}, id="PLAIN"),
        pytest.param({**PLAIN, "sasl.jaas.config": LOGIN.replace(PLAIN_MODULE, SCRAM_MODULE)}, id="SCRAM's module"),
        pytest.param({**PLAIN, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN}, id="PLAIN's module"),
        pytest.param({**OAUTH, **PROVIDER}, id="a provider alone"),
        pytest.param(
            {
                **OAUTH,
                **ENDPOINT,
                "sasl.jaas.config": f'{OAUTH_MODULE} required clientId="a" clientSecret="s3cret" scope="x";',
                "sasl.login.callback.handler.class": f"kafkashaded.{KAFKAS_HANDLER}",
            },
            id="an endpoint, as Databricks has it",
        ),
        pytest.param(
            {**OAUTH, "sasl.jaas.config": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="a";'}, id="unsigned"
        ),
    ],
)
def test_what_goes_together_is_taken(options: dict[str, str]) -> None:
    config = ClientConfig.parse(options)
    assert {config: 1}[pickle.loads(pickle.dumps(config))] == 1


def test_a_configuration_shows_none_of_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    config = ClientConfig.parse(
        {
            **PLAIN,
            "sasl.jaas.config": LOGIN,
            "ssl.keystore.key": "s3cret",
            "ssl.keystore.certificate.chain": "s3cret",
            "ssl.key.password": "s3cret",
            "ssl.truststore.certificates": "s3cret",
        }
    )
    copy = pickle.loads(pickle.dumps(replace(config, client_id="copy")))
    with caplog.at_level(logging.DEBUG):
        logging.getLogger(__name__).warning("%s %r %s", config, [copy], vars(copy))
    shown = f"{config} {copy!r} {vars(config)} {config.sasl_jaas_config} {(config,)}" + caplog.text
    assert "s3cret" not in shown
    assert "[hidden]" in shown
    assert config.ssl_key_password is not None
    assert config.ssl_key_password.reveal() == "s3cret"
    assert "s3cret" not in repr(SaslAuthenticateRequest(b"\0alice\0s3cret"))


def test_a_secret_is_equal_by_what_it_holds() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert f"{Secret('a')} {[Secret('a')]}" == "[hidden] [[hidden]]"
    assert not Secret("")


def test_every_option_that_kafka_keeps_secret_is_one_here() -> None:
    secret = {name for name, option in OPTIONS.items() if option.is_secret}
    assert secret == {
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
    }
