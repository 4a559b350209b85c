"""A real Apache Kafka whose listeners have TLS and SASL, and the options that let a client in: ours and Kafka's own."""

from pylog.connector.client.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tests.support.apache_kafka import ApacheKafka
from tests.support.certificates import Authority

LISTENERS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
WAYS_IN = [("SSL", ""), *((listener, mechanism) for listener in LISTENERS[1:] for mechanism in MECHANISMS)]
PASSWORD = 's3cret \\ "quoted" =;'  # no comma: kafka-storage could not take it
SESSION_LIFETIME_MS = 5_000

_MODULES = {"PLAIN": PLAIN_MODULE, "OAUTHBEARER": OAUTH_MODULE}


def quoted(text: str) -> str:
    """As JAAS wants it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jaas(mechanism: str, name: str = "alice", password: str = PASSWORD) -> str:
    if mechanism == "OAUTHBEARER":
        return f"{OAUTH_MODULE} required unsecuredLoginStringClaim_sub={quoted(name)};"
    module = _MODULES.get(mechanism, SCRAM_MODULE)
    return f"{module} required username={quoted(name)} password={quoted(password)};"


class SecuredKafka(ApacheKafka):
    """Users: alice, of every mechanism, and "b=ob" of SCRAM-SHA-256 whose password SASLprep would change."""

    def __init__(self, authority: Authority, properties: dict[str, str] | None = None) -> None:
        self.authority = authority
        secured = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.broker.store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "connections.max.reauth.ms": str(SESSION_LIFETIME_MS),
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            for mechanism in MECHANISMS:
                user = f"user_alice={_in_properties(quoted(PASSWORD))}" if mechanism == "PLAIN" else ""
                module = _MODULES.get(mechanism, SCRAM_MODULE)
                name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
                secured[name] = f"{module} required {user or 'unsecuredLoginStringClaim_sub=kafka'};"
        credentials = [
            f"SCRAM-SHA-256=[name=alice,password={PASSWORD}]",
            f"SCRAM-SHA-512=[name=alice,password={PASSWORD}]",
            "SCRAM-SHA-256=[name=b=ob,password=paªss]",
        ]
        arguments = [part for credential in credentials for part in ("--add-scram", credential)]
        super().__init__({**secured, **(properties or {})}, listeners=LISTENERS, format_arguments=arguments)

    def options(self, listener: str, mechanism: str = "", **login: str) -> dict[str, str]:
        """Those of a client, by Kafka's names."""
        options = {"bootstrap.servers": self.servers(listener), "security.protocol": listener}
        if listener.endswith("SSL"):
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.certificate)}
        if mechanism:
            options |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, **login)}
        return options


def _in_properties(text: str) -> str:
    return text.replace("\\", "\\\\")
