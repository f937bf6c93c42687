import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import java.io.PrintStream;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;

/**
 * Debezium's engine on a database: one line of JSON for each change event, in the bytes of each converter.
 *
 * The only argument is {"engine": {NAME: VALUE}, "converters": {NAME: {"class": CLASS, SETTING: VALUE}}}. A line is
 * {"topic": T, "key": {NAME: BASE64}, "value": {NAME: BASE64}}, with null for no key and for a tombstone. The end of
 * stdin ends the process.
 */
public final class ChangeEvents {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream lines = System.out;
        System.setOut(System.err);
        JsonNode plan = JSON.readTree(arguments[0]);
        Properties engineSettings = new Properties();
        plan.get("engine").properties().forEach(each -> engineSettings.put(each.getKey(), each.getValue().asText()));
        Map<String, Converter> keys = converters(plan.get("converters"), true);
        Map<String, Converter> values = converters(plan.get("converters"), false);
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(io.debezium.engine.format.ChangeEventFormat.of(Connect.class))
                        .using(engineSettings)
                        .using((success, message, error) -> {
                            if (!success) {
                                System.err.println("the engine ended: " + message);
                                if (error != null) {
                                    error.printStackTrace();
                                }
                                System.exit(1);
                            }
                        })
                        .notifying(event -> {
                            SourceRecord record = event.record();
                            ObjectNode line = JSON.createObjectNode().put("topic", record.topic());
                            ObjectNode key = line.putObject("key");
                            ObjectNode value = line.putObject("value");
                            keys.forEach((name, each) -> key.put(name, text(each.fromConnectData(
                                    record.topic(), record.keySchema(), record.key()))));
                            values.forEach((name, each) -> value.put(name, text(each.fromConnectData(
                                    record.topic(), record.valueSchema(), record.value()))));
                            synchronized (lines) {
                                lines.println(line);
                                lines.flush();
                            }
                        })
                        .build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        while (System.in.read() >= 0) {
            // Only the end counts.
        }
        engine.close();
        executor.shutdown();
    }

    private static Map<String, Converter> converters(JsonNode wanted, boolean isKey) throws Exception {
        Map<String, Converter> made = new LinkedHashMap<>();
        for (Map.Entry<String, JsonNode> each : wanted.properties()) {
            Map<String, Object> settings = new HashMap<>();
            each.getValue().properties().forEach(one -> settings.put(one.getKey(), one.getValue().asText()));
            Converter converter = (Converter) Class.forName((String) settings.remove("class"))
                    .getDeclaredConstructor().newInstance();
            converter.configure(settings, isKey);
            made.put(each.getKey(), converter);
        }
        return made;
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
