"""A real Kafka for tests: one process that is broker and controller (KRaft), on the loopback.

`running()` starts it for its context, in some seconds, on free ports, in a temporary directory. It ends with
the context, or with the test process if that is killed.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pinned_jars
from called_jvm import SMALL, called_jvm

_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_ROLES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    # A controller that starts again waits until the session of the broker's last life is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
_SERIALIZER = "org.apache.kafka.common.serialization.StringSerializer"


@dataclass
class Kafka:
    """A running broker; `address` is the value of `bootstrap.servers`."""

    address: str
    jvm: Any
    _configuration: Any
    _server: Any = None

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, and return when the broker has it."""
        admin = self.jvm.org.apache.kafka.clients.admin
        client = admin.Admin.create(self._properties({}))
        try:
            client.createTopics([_new_topic(self.jvm, topic, partitions)]).all().get()
        finally:
            client.close()

    def producer(self, transactional_id: str) -> Producer:
        """Return a producer of transactions; it ends those of an older producer of the same id."""
        options = {"transactional.id": transactional_id, "transaction.timeout.ms": "600000"}
        options |= {"key.serializer": _SERIALIZER, "value.serializer": _SERIALIZER}
        client = self.jvm.org.apache.kafka.clients.producer.KafkaProducer(self._properties(options))
        client.initTransactions()
        return Producer(client, self.jvm)

    def start(self) -> None:
        """Start the broker on the files that it left, and return when it accepts clients."""
        time = self.jvm.org.apache.kafka.common.utils.Time.SYSTEM
        settings = self.jvm.kafka.server.KafkaConfig(self._configuration)
        self._server = self.jvm.kafka.server.KafkaRaftServer(settings, time)
        self._server.startup()

    def stop(self) -> None:
        """Stop the broker, and return when its files are closed."""
        self._server.shutdown()
        self._server.awaitShutdown()

    def _properties(self, options: dict[str, str]) -> Any:
        return _properties(self.jvm, {"bootstrap.servers": self.address, **options})


@dataclass(frozen=True)
class Producer:
    """A producer with one transaction at a time."""

    client: Any
    jvm: Any

    def begin(self, topic: str, rows: Iterable[tuple[str, str]]) -> None:
        """Begin a transaction and send rows, each a key and a value; they are in the topic on return."""
        record = self.jvm.org.apache.kafka.clients.producer.ProducerRecord
        self.client.beginTransaction()
        for key, value in rows:
            self.client.send(record(topic, key, value))
        self.client.flush()

    def commit(self) -> None:
        """Commit the transaction."""
        self.client.commitTransaction()

    def abort(self) -> None:
        """Abort the transaction."""
        self.client.abortTransaction()


@contextmanager
def running(options: Sequence[str] = SMALL) -> Iterator[Kafka]:
    """Run a broker without topics, in a JVM with these options."""
    with tempfile.TemporaryDirectory(prefix="minikafka-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with called_jvm(directory, pinned_jars.jars(pinned_jars.BROKER), options) as gateway:
            try:
                kafka = _started(gateway, directory)
            except Exception as error:
                text = (directory / "log").read_text(errors="replace")
                raise RuntimeError(f"Kafka failed: {text[-4000:]}") from error
            yield kafka


def _started(gateway: Any, directory: Path) -> Kafka:
    broker, controller = _free_ports(2)
    options = {
        **_ROLES,
        "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(directory / "data"),
    }
    written = directory / "server.properties"
    written.write_text("".join(f"{key}={value}\n" for key, value in options.items()), encoding="utf-8")
    words = ["format", "-t", _CLUSTER_ID, "-c", str(written)]
    arguments = gateway.new_array(gateway.jvm.String, len(words))
    for number, word in enumerate(words):
        arguments[number] = word
    code = gateway.jvm.kafka.tools.StorageTool.execute(arguments, gateway.jvm.System.out)
    if code:
        raise RuntimeError(f"the directory of Kafka cannot be formatted: code {code}")
    kafka = Kafka(f"127.0.0.1:{broker}", gateway.jvm, _properties(gateway.jvm, options))
    kafka.start()
    return kafka


def _free_ports(number: int) -> list[int]:
    """Return ports that were free a moment ago; all are held until the last is known."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [taken.getsockname()[1] for taken in held]
    finally:
        for taken in held:
            taken.close()


def _properties(jvm: Any, options: dict[str, str]) -> Any:
    properties = jvm.java.util.Properties()
    for key, value in options.items():
        properties.setProperty(key, value)
    return properties


def _new_topic(jvm: Any, topic: str, partitions: int) -> Any:
    empty = jvm.java.util.Optional
    return jvm.org.apache.kafka.clients.admin.NewTopic(topic, empty.of(partitions), empty.empty())
