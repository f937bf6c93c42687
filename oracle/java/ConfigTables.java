import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Kafka's configs: their declarations, and its verdict on values. */
final class ConfigTables {
    private static final Map<String, String> LEAST = Map.of(
        "process.roles", "broker,controller",
        "node.id", "1",
        "controller.quorum.voters", "1@localhost:9093",
        "listeners", "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names", "CONTROLLER");

    /** The types and defaults of all configs, by name, and the broker configs that set a topic config. */
    static ObjectNode declarations() {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        answer.set("broker", describe(KafkaConfig.configDef()));
        answer.set("topic", describe(LogConfig.configDefCopy()));
        ObjectNode synonyms = answer.putObject("synonyms");
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((topicConfig, brokerConfigs) -> {
            ArrayNode names = synonyms.putArray(topicConfig);
            brokerConfigs.forEach(brokerConfig -> names.add(brokerConfig.name()));
        });
        return answer;
    }

    private static ObjectNode describe(ConfigDef declared) {
        ObjectNode described = Oracle.JSON.createObjectNode();
        for (ConfigDef.ConfigKey key : declared.configKeys().values()) {
            String text = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE
                ? null
                : ConfigDef.convertToString(key.defaultValue, key.type);
            described.putObject(key.name).put("type", key.type.name()).put("default", text);
        }
        return described;
    }

    /**
     * Of each {"scope": "broker" or "topic", "values": {name: text, ..}}, null if Kafka takes it, or its complaint. With
     * a broker's values comes what they make of the topic configs.
     */
    static ObjectNode judge(JsonNode cases) {
        ArrayNode verdicts = Oracle.JSON.createArrayNode();
        for (JsonNode each : cases) {
            Map<String, String> values = new HashMap<>();
            each.get("values").properties().forEach(entry -> values.put(entry.getKey(), entry.getValue().asText()));
            ObjectNode verdict = verdicts.addObject();
            try {
                if (each.get("scope").asText().equals("topic")) {
                    LogConfig.validate(values);
                } else {
                    Map<String, String> all = new HashMap<>(LEAST);
                    all.putAll(values);
                    LogConfig topics = new LogConfig(new KafkaConfig(all, false).extractLogConfigMap());
                    ObjectNode texts = verdict.putObject("topic_configs");
                    LogConfig.configDefCopy().configKeys().values().forEach(key ->
                        texts.put(key.name, ConfigDef.convertToString(topics.values().get(key.name), key.type)));
                }
            } catch (RuntimeException refused) {
                verdict.put("complaint", refused.toString());
            }
        }
        return Oracle.JSON.createObjectNode().set("verdicts", verdicts);
    }
}
