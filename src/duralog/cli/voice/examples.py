"""The examples at the end of each command's help, by the command's name.

Tests parse all of them; those of `serve` are run up to the start of the broker.
"""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "serve": (
        "duralog serve data",
        "duralog serve --data disk1 --data disk2",
        "duralog serve data --listen 0.0.0.0:9092 --advertise kafka.example.com:9092 --insecure",
        "duralog serve --ephemeral --override log.cleanup.policy=compact",
        "duralog serve data --schema-registry 8081",
    ),
    "produce": (
        "echo hello | duralog produce data --topic greetings",
        "duralog produce localhost -t orders --key k1 --value '{\"total\": 12}'",
        "duralog produce localhost -t orders --file orders.txt --key-separator :",
        "duralog consume data -t orders --json | duralog produce localhost -t copy --from-json",
        "duralog produce localhost -t orders --value-schema order.avsc --schema-registry http://localhost:8081",
    ),
    "consume": (
        "duralog consume data --topic orders",
        "duralog consume localhost -t orders --follow --group billing",
        "duralog consume localhost -t 'pay*' -o -5 -f '%t %p %o %k %s\\n'",
        "duralog consume data -t orders --time 2h --json",
        "duralog consume data -t orders --where '$.customer.id = 7 and $.amount > 10.5'",
        "duralog consume backup -t orders --value-format auto",
        "duralog consume kafka1: -t orders --config-file client.properties",
    ),
    "topic list": ("duralog topic list data", "duralog topic list localhost --json"),
    "topic describe": ("duralog topic describe data --topic orders --all",),
    "topic create": (
        "duralog topic create data --topic orders --partitions 6",
        "duralog topic create localhost -t users -c cleanup.policy=compact --if-not-exists",
    ),
    "topic alter": (
        "duralog topic alter localhost --topic orders --config retention.ms=86400000",
        "duralog topic alter data --topic orders --partitions 12",
    ),
    "topic move": (
        "duralog topic move disk1,disk2 --topic orders --partition 0 --to disk2",
        "duralog topic move localhost -t orders -p 0 --to /var/lib/disk2",
    ),
    "topic delete": ("duralog topic delete localhost --topic orders --yes",),
    "group list": ("duralog group list localhost",),
    "group describe": ("duralog group describe localhost --group billing",),
    "group reset": (
        "duralog group reset localhost -g billing -t orders --to-earliest",
        "duralog group reset localhost -g billing -t orders --by-duration PT2H --execute",
        "duralog group reset localhost -g billing --all-topics --shift-by -100 --export",
        "duralog group reset localhost -g billing --from-file plan.csv --execute",
    ),
    "group delete": ("duralog group delete localhost --group billing --yes",),
    "config list": ("duralog config list localhost:9092", "duralog config list data --all"),
    "config get": (
        "duralog config get data max.connections",
        "duralog config get localhost:9092 log.retention.ms --json",
    ),
    "config set": (
        "duralog config set localhost:9092 log.cleaner.threads=2",
        "duralog config set data max.connections=500",
    ),
    "config reset": (
        "duralog config reset localhost:9092 log.cleaner.threads",
        "duralog config reset data max.connections",
    ),
    "acl list": (
        "duralog acl list localhost",
        "duralog acl list data --topic orders --resource-pattern-type match",
    ),
    "acl add": (
        "duralog acl add localhost --allow-principal User:ana --operation read -t orders",
        "duralog acl add data --allow-principal User:etl --consumer -t orders -g etl",
    ),
    "acl remove": (
        "duralog acl remove localhost --allow-principal User:ana -t orders",
        "duralog acl remove data --topic orders --yes",
    ),
    "user add": (
        "duralog user add data --user alice",
        "duralog user add localhost -u alice --password-file secret.txt",
    ),
    "user list": ("duralog user list localhost",),
    "user delete": ("duralog user delete localhost --user alice --yes",),
    "user entry": (
        "duralog user entry --user ana --role change --password-file password.txt",
        "duralog user entry --user prometheus --token",
    ),
    "dump": (
        "duralog dump data/orders-0 --records --limit 10",
        "duralog dump data/orders-0/00000000000000000000.log --verify",
        "duralog dump data --topic orders --records --since 2h --json",
        "duralog dump backup/orders-0 --value-format auto --to orders.parquet",
    ),
    "lookup": (
        "duralog lookup data --topic orders --partition 0 --offset 4711",
        "duralog lookup data --topic users --key user-17",
        "duralog lookup backup -t orders --time 2h --value-format auto",
    ),
    "stats": (
        "duralog stats data --html stats.html",
        "duralog stats data --topic users --prefix-separator :",
        "duralog stats s3://bucket/kafka --engine spark --storage-option region=eu-west-1",
    ),
    "console": ("duralog console data", "duralog console localhost:9092 --data data --allow-changes"),
    "verify": (
        "duralog verify /var/lib/kafka",
        "duralog verify data --topic orders --deep --json",
        "duralog verify s3://bucket/kafka --engine spark --master spark://head:7077",
    ),
    "cluster explain": (
        "duralog cluster explain 'backup/broker-*/data*'",
        "duralog cluster explain backup.json --topic orders --json",
    ),
    "cluster verify": (
        "duralog cluster verify broker-1/data broker-2/data broker-3/data",
        "duralog cluster verify 's3://backup/broker-*/data*' --storage-option region=eu-west-1",
        "duralog cluster verify '/mnt/broker-*/data*' --engine spark --html copies.html",
    ),
    "cluster heal": (
        "duralog cluster heal 'broker-*/data' --dry-run",
        "duralog cluster heal broker-1/data broker-2/data broker-3/data --topic orders",
    ),
    "cluster restore": (
        "duralog cluster restore 'backup/broker-*/data*' --to restored --topic orders --topic 'pay*'",
        "duralog cluster restore s3://backup/broker-1/data --to restored --dry-run",
    ),
    "repair": ("duralog repair data --dry-run", "duralog repair data --topic orders --restore"),
    "compact": (
        "duralog compact data --explain --topic users",
        "duralog compact data --roll --map-bytes 1GiB",
        "duralog compact /mnt/kafka --engine spark --min-dirty-ratio 0.5",
    ),
    "retain": ("duralog retain data --dry-run", "duralog retain data --topic orders --retention-ms 86400000"),
    "job export": (
        "duralog job export data lake --format delta --topic orders",
        "duralog job export s3://bucket/kafka s3://bucket/lake --headers",
    ),
    "job snapshot": (
        "duralog job snapshot data lake --topic users",
        "duralog job snapshot data lake -t users --as-of 2026-11-01T00:00:00Z",
    ),
    "job reindex": ("duralog job reindex data --topic orders",),
    "job upgrade": ("duralog job upgrade data --dry-run", "duralog job upgrade data --codec zstd"),
    "job compact": ("duralog job compact /mnt/kafka --dry-run",),
    "job repair": ("duralog job repair /mnt/kafka --dry-run",),
    "job retain": ("duralog job retain /mnt/kafka --dry-run",),
    "job stats": ("duralog job stats s3://bucket/kafka --topic orders",),
    "job verify": ("duralog job verify s3://bucket/kafka --master spark://head:7077",),
    "doctor": ("duralog doctor data --why",),
    "bench": ("duralog bench data --size 1GiB", "duralog bench localhost:9092 --seconds 10 --acks all"),
    "completion": ('eval "$(duralog completion bash)"', "duralog completion zsh"),
}


def epilog_of(name: str) -> str | None:
    """The end of a command's help: a line for each example."""
    examples = EXAMPLES.get(name)
    return None if examples is None else "\n".join(("Examples:", *examples))
