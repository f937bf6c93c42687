"""Writes through a broker that wants TLS and a log-in. What Spark shows and logs of them holds no secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import duralog
from duralog.broker.broker import Broker
from duralog.broker.net.listening import Listening
from duralog.config import BrokerConfig
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism
from tests.support.broker.certificates import Authority, Signed

pytest.importorskip("confluent_kafka")

PASSWORD = "pencil-4711"
WRONG = "eraser-0815"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Guarded:
    def __init__(self, broker: Broker, folder: Path, authority: Authority) -> None:
        self.store = broker.store
        self.folder = folder
        self.key: Signed = authority.sign()
        (folder / "ca.pem").write_text(authority.pem)
        self._servers = ",".join(map(str, broker.addresses.values()))

    def options(self, password: str = PASSWORD) -> dict[str, str]:
        return {
            "path": str(self.folder / "staged"),
            "topic": "orders",
            "kafka.bootstrap.servers": self._servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{MODULE} required username="carol" password="{password}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.folder / "ca.pem"),
            "kafka.ssl.keystore.key": self.key.key_pem(),
            "kafka.ssl.keystore.certificate.chain": self.key.certificate_pem,
        }

    def secrets(self) -> list[str]:
        """What must not be shown: a line of the key is enough to look for."""
        return [PASSWORD, WRONG, self.key.key_pem().splitlines()[1]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    authority = Authority()
    server = authority.sign()
    config = BrokerConfig.of(
        {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "ssl.keystore.certificate.chain": server.certificate_pem,
            "ssl.keystore.key": server.key_pem(),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "connection.failed.authentication.delay.ms": "5",
        }
    )
    with Broker(None, config=config, listening=Listening.of(config)) as broker:
        mechanism = ScramMechanism.SCRAM_SHA_512
        broker.store.alter_scram_credentials({("carol", mechanism): ScramCredential.of_password(mechanism, PASSWORD)})
        broker.store.create_topic("orders", 1)
        yield Guarded(broker.start(), tmp_path_factory.mktemp("guarded"), authority)


@pytest.fixture
def logged(spark: SparkSession) -> Iterator[Any]:
    """All that Spark logs, on every level."""
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    written = jvm.java.io.StringWriter()
    layout = log4j.core.layout.PatternLayout.createDefaultLayout()
    appender = log4j.core.appender.WriterAppender.createAppender(layout, None, written, "searched", False, True)
    appender.start()
    root = log4j.LogManager.getRootLogger()
    root.addAppender(appender)
    level = root.getLevel().toString()
    spark.sparkContext.setLogLevel("DEBUG")
    yield written
    spark.sparkContext.setLogLevel(level)
    root.removeAppender(appender)


def shown_by_the_ui(spark: SparkSession) -> str:
    store: Any = spark._jsparkSession.sharedState().statusStore()
    runs = store.executionsList()
    return "\n".join(
        f"{runs.apply(number).description()} {runs.apply(number).details()}"
        f" {runs.apply(number).physicalPlanDescription()} {runs.apply(number).modifiedConfigs().toString()}"
        f" {runs.apply(number).errorMessage().toString()}"
        for number in range(runs.size())
    )


def test_rows_arrive_and_no_secret_is_shown(spark: SparkSession, guarded: Guarded, logged: Any) -> None:
    rows = spark.createDataFrame([(b"k", b"one"), (b"k", b"two")], "key binary, value binary")
    rows.write.format("duralog").mode("append").options(**guarded.options()).save()
    assert [record.value for record in guarded.store.partition("orders", 0).read(0) if record.value] == [b"one", b"two"]
    with pytest.raises(Exception, match="refuses the log-in") as caught:
        rows.write.format("duralog").mode("append").options(**guarded.options(WRONG)).save()
    with duralog.open(guarded.folder / "logs") as store:
        store.create_topic("orders", 1)
    given = {name: value for name, value in guarded.options().items() if name.startswith("kafka.")}
    frame = spark.read.format("duralog").options(**given).load(str(guarded.folder / "logs"))
    plan = frame._jdf.queryExecution().toString()
    frame.collect()
    ui = shown_by_the_ui(spark)
    assert "finished" in logged.toString()
    assert "duralog" in ui.lower()
    for secret in guarded.secrets():
        for place, text in (("log", logged.toString()), ("ui", ui), ("error", str(caught.value)), ("plan", plan)):
            at = text.find(secret)
            assert at < 0, f"{place}: {text[max(0, at - 300) : at + 20]}"
