"""A real Apache Kafka of three nodes on 127.0.0.1, each of them broker and controller, for as long as a `with` lasts.

Topics have three replicas and take writes while two of them are in sync: any one node may be away."""

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from tests.support.apache_kafka import SOON_BACK, ApacheKafka
from tests.support.ports import free_ports

COUNT = 3
_REPLICATED = {
    "default.replication.factor": str(COUNT),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(COUNT),
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": str(COUNT),
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "5000",
}


class _Node(ApacheKafka):
    """Its ports are settled before the first node starts: the others know them."""

    def __init__(self, number: int, ports: tuple[int, int], voters: str, cluster_id: str | None) -> None:
        own = {"node.id": str(number), "controller.quorum.voters": voters}
        super().__init__({**_REPLICATED, **SOON_BACK, **own}, heap="256m")
        self._ports = dict(zip(self._listeners, ports, strict=True))
        self.cluster_id = cluster_id or self.cluster_id

    def prepare(self) -> None:
        if not self.data.exists():
            self._format()


class KafkaNodes:
    def __init__(self) -> None:
        ports = free_ports(2 * COUNT)
        pairs = [(ports[2 * place], ports[2 * place + 1]) for place in range(COUNT)]
        voters = ",".join(f"{number}@127.0.0.1:{pair[1]}" for number, pair in enumerate(pairs, 1))
        self.nodes: list[_Node] = []
        for number, pair in enumerate(pairs, 1):
            cluster_id = self.nodes[0].cluster_id if self.nodes else None
            self.nodes.append(_Node(number, pair, voters, cluster_id))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def __enter__(self) -> "KafkaNodes":
        try:
            with ThreadPoolExecutor(COUNT) as pool:  # one alone waits for a second
                list(pool.map(lambda node: node.start(), self.nodes))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()
