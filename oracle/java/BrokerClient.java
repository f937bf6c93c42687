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
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
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
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients, asking a broker. Each command connects, asks and disconnects; keys and values are in hex. */
final class BrokerClient {
    private static final int PATIENCE_MS = 30_000;
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
            Map<String, TopicDescription> topics = ledTopics(admin);
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

    private static Map<String, TopicDescription> ledTopics(Admin admin) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            Map<String, TopicDescription> topics = admin.describeTopics(names).allTopicNames().get();
            boolean led = true;
            for (TopicDescription topic : topics.values()) {
                for (TopicPartitionInfo partition : topic.partitions()) {
                    led &= partition.leader() != null && !partition.leader().isEmpty();
                }
            }
            if (led) {
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
            ledTopics(admin);
        }
        return Oracle.JSON.createObjectNode();
    }

    /** Appends [{"key": hex or null, "value": likewise, "timestamp": ms}, ..] to a partition and tells the offsets. */
    static ObjectNode produce(JsonNode command) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, command.get("bootstrap").asText(),
            ProducerConfig.LINGER_MS_CONFIG, 50,
            ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, PATIENCE_MS + 10_000));
        command.path("settings").properties()
            .forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (JsonNode record : command.get("records")) {
                sent.add(producer.send(new ProducerRecord<>(
                    command.get("topic").asText(),
                    command.get("partition").asInt(),
                    record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null,
                    bytes(record.get("key")),
                    bytes(record.get("value")))));
            }
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

    /** Every record of a partition, from its start to its end as it is when the command comes. */
    static ObjectNode consume(JsonNode command) {
        Map<String, Object> settings = Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, command.get("bootstrap").asText(),
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, command.path("isolation").asText("read_uncommitted"),
            ConsumerConfig.CHECK_CRCS_CONFIG, true,
            ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, false,
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none",
            ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, PATIENCE_MS);
        TopicPartition partition = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
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

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }

    private static byte[] bytes(JsonNode hex) {
        return hex == null || hex.isNull() ? null : HEX.parseHex(hex.asText());
    }
}
