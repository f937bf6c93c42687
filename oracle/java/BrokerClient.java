import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients, asking a broker. Each command connects, asks and disconnects; keys and values are in hex. */
final class BrokerClient {
    private static final int PATIENCE_MS = 60_000;
    private static final HexFormat HEX = HexFormat.of();

    private static Admin admin(JsonNode command) {
        return Admin.create(Map.of(
            AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, command.get("bootstrap").asText(),
            AdminClientConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 100,
            AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, PATIENCE_MS));
    }

    /** Every topic, once all partitions have a leader: its id, the number of its partitions, the configs that it sets. */
    static ObjectNode topics(JsonNode command) throws Exception {
        try (Admin admin = admin(command)) {
            Map<String, TopicDescription> topics = ledTopics(admin, Set.of());
            List<ConfigResource> resources = new ArrayList<>();
            topics.keySet().forEach(name -> resources.add(new ConfigResource(ConfigResource.Type.TOPIC, name)));
            ObjectNode described = Oracle.JSON.createObjectNode();
            admin.describeConfigs(resources).all().get().forEach((resource, configs) -> {
                TopicDescription topic = topics.get(resource.name());
                ObjectNode own = Oracle.JSON.createObjectNode();
                for (ConfigEntry entry : configs.entries()) {
                    if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                        own.put(entry.name(), entry.value());
                    }
                }
                described.putObject(resource.name())
                    .put("id", topic.topicId().toString())
                    .put("partitions", topic.partitions().size())
                    .set("configs", own);
            });
            return Oracle.JSON.createObjectNode().set("topics", described);
        }
    }

    /** All topics, the expected ones among them. A broker knows who leads a partition before that one serves it. */
    private static Map<String, TopicDescription> ledTopics(Admin admin, Set<String> expected) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            Map<String, TopicDescription> topics = admin.describeTopics(names).allTopicNames().get();
            boolean led = names.containsAll(expected);
            Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
            for (TopicDescription topic : topics.values()) {
                for (TopicPartitionInfo partition : topic.partitions()) {
                    led &= partition.leader() != null && !partition.leader().isEmpty();
                    ends.put(new TopicPartition(topic.name(), partition.partition()), OffsetSpec.latest());
                }
            }
            if (led) {
                admin.listOffsets(ends).all().get();
                return topics;
            }
            if (System.currentTimeMillis() > deadline) {
                throw new TimeoutException("a partition has no leader: " + topics);
            }
            Thread.sleep(50);
        }
    }

    static ObjectNode createTopic(JsonNode command) throws Exception {
        Map<String, String> configs = new HashMap<>();
        command.get("configs").properties().forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
        try (Admin admin = admin(command)) {
            NewTopic topic = new NewTopic(
                command.get("topic").asText(), Optional.of(command.get("partitions").asInt()), Optional.empty());
            admin.createTopics(List.of(topic.configs(configs))).all().get();
            ledTopics(admin, Set.of(topic.name()));
        }
        return Oracle.JSON.createObjectNode();
    }

    /**
     * Appends [{"key": hex or null, "value": likewise, "timestamp": ms, "headers": [[key, hex], ..]}, ..] to a
     * partition and tells the offsets. With a "transaction" they are one, and that is its end: "commit", "abort", or
     * "open" for one that is left as it is. One that ends has its markers written when this returns.
     */
    static ObjectNode produce(JsonNode command) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, command.get("bootstrap").asText(),
            ProducerConfig.LINGER_MS_CONFIG, 50,
            ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, PATIENCE_MS + 10_000));
        command.path("settings").properties()
            .forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ByteArraySerializer bytes = new ByteArraySerializer();
        String end = command.path("transaction").asText("");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            if (!end.isEmpty()) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (JsonNode record : command.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(
                    command.get("topic").asText(),
                    command.get("partition").asInt(),
                    record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null,
                    bytes(record.get("key")),
                    bytes(record.get("value")),
                    headers(record.path("headers")))));
            }
            producer.flush();
            switch (end) {
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                // A producer that has time to close aborts what is open.
                case "open" -> producer.close(Duration.ZERO);
                default -> { }
            }
        }
        if (Set.of("commit", "abort").contains(end)) {
            waitForMarkers(command, settings.get(ProducerConfig.TRANSACTIONAL_ID_CONFIG).toString());
        }
        ArrayNode offsets = Oracle.JSON.createArrayNode();
        for (Future<RecordMetadata> future : sent) {
            try {
                offsets.add(future.get().offset());
            } catch (ExecutionException refused) {
                offsets.add(refused.getCause().toString());
            }
        }
        return Oracle.JSON.createObjectNode().set("offsets", offsets);
    }

    /** A transaction's end is answered when it is decided. Only then are the markers written. */
    private static void waitForMarkers(JsonNode command, String transactionalId) throws Exception {
        Set<TransactionState> done = Set.of(TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        try (Admin admin = admin(command)) {
            while (!done.contains(
                    admin.describeTransactions(List.of(transactionalId)).description(transactionalId).get().state())) {
                if (System.currentTimeMillis() > deadline) {
                    throw new TimeoutException(transactionalId + " has no markers");
                }
                Thread.sleep(5);
            }
        }
    }

    /** What a partition answers to ["earliest", "latest", "max_timestamp", milliseconds, ..]: offset, time and epoch. */
    static ObjectNode offsets(JsonNode command) throws Exception {
        TopicPartition partition = partition(command);
        ArrayNode answers = Oracle.JSON.createArrayNode();
        try (Admin admin = admin(command)) {
            for (JsonNode asked : command.get("asked")) {
                OffsetSpec spec = switch (asked.asText()) {
                    case "earliest" -> OffsetSpec.earliest();
                    case "latest" -> OffsetSpec.latest();
                    case "max_timestamp" -> OffsetSpec.maxTimestamp();
                    default -> OffsetSpec.forTimestamp(asked.asLong());
                };
                ListOffsetsResultInfo found = admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
                answers.addObject()
                    .put("offset", found.offset())
                    .put("timestamp", found.timestamp())
                    .put("leader_epoch", found.leaderEpoch().orElse(-1));
            }
        }
        return Oracle.JSON.createObjectNode().set("offsets", answers);
    }

    /** Lets a partition start at an offset and tells where it starts now. */
    static ObjectNode deleteRecords(JsonNode command) throws Exception {
        TopicPartition partition = partition(command);
        RecordsToDelete before = RecordsToDelete.beforeOffset(command.get("before_offset").asLong());
        try (Admin admin = admin(command)) {
            long start = admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
            return Oracle.JSON.createObjectNode().put("start", start);
        }
    }

    /** The producers that a partition remembers, by their ids. */
    static ObjectNode producers(JsonNode command) throws Exception {
        TopicPartition partition = partition(command);
        ObjectNode producers = Oracle.JSON.createObjectNode();
        try (Admin admin = admin(command)) {
            for (ProducerState state :
                    admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
                producers.putObject(Long.toString(state.producerId()))
                    .put("epoch", state.producerEpoch())
                    .put("last_sequence", state.lastSequence())
                    .put("last_timestamp", state.lastTimestamp())
                    .put("coordinator_epoch", state.coordinatorEpoch().orElse(-1))
                    .put("transaction_start", state.currentTransactionStartOffset().orElse(-1));
            }
        }
        return Oracle.JSON.createObjectNode().set("producers", producers);
    }

    /** Every record of a partition, from its start to its end as it is when the command comes. */
    static ObjectNode consume(JsonNode command) {
        Map<String, Object> settings = Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, command.get("bootstrap").asText(),
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, command.path("isolation").asText("read_uncommitted"),
            ConsumerConfig.CHECK_CRCS_CONFIG, true,
            ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, false,
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none",
            // A consumer that is closed waits for the fetch that is under way.
            ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 10,
            ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, PATIENCE_MS);
        TopicPartition partition = partition(command);
        ArrayNode records = Oracle.JSON.createArrayNode();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.assign(List.of(partition));
            long start = consumer.beginningOffsets(List.of(partition)).get(partition);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            consumer.seek(partition, start);
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    records.add(describe(record));
                    deadline = System.currentTimeMillis() + PATIENCE_MS;
                }
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("nothing comes after offset " + consumer.position(partition));
                }
            }
            return Oracle.JSON.createObjectNode().put("start", start).put("end", end).set("records", records);
        }
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode described = Oracle.JSON.createObjectNode()
            .put("offset", record.offset())
            .put("timestamp", record.timestamp())
            .put("timestamp_type", record.timestampType().toString())
            .put("key", hex(record.key()))
            .put("value", hex(record.value()));
        ArrayNode headers = described.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(hex(header.value()));
        }
        return described;
    }

    private static TopicPartition partition(JsonNode command) {
        return new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
    }

    private static List<Header> headers(JsonNode described) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : described) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        return headers;
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }

    private static byte[] bytes(JsonNode hex) {
        return hex == null || hex.isNull() ? null : HEX.parseHex(hex.asText());
    }
}
