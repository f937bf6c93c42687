import io.apicurio.registry.resolver.ParsedSchema;
import io.apicurio.registry.resolver.SchemaLookupResult;
import io.apicurio.registry.resolver.SchemaResolver;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.lang.reflect.Proxy;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * Avro payloads as Apicurio's serializer for Kafka writes them, one JSON line each, of two versions of a schema. The
 * arguments are its name in the lines, and settings as NAME=VALUE. The registry is asked for nothing: the schemas have
 * the ids 7 and 300,000,000.
 */
public final class ApicurioAvroPayloads {
    private static final String FIRST =
        "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"int\"}]}";
    private static final String SECOND =
        "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"},"
            + "{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}]}";

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        for (int number = 1; number < arguments.length; number++) {
            String[] setting = arguments[number].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        for (int number : new int[] {0, -1, 2_000_000_000}) {
            GenericRecord first = new GenericData.Record(new Schema.Parser().parse(FIRST));
            first.put("id", number);
            print(arguments[0], settings, 7, first);
            GenericRecord second = new GenericData.Record(new Schema.Parser().parse(SECOND));
            second.put("id", 3L * number);
            second.put("note", number == 0 ? null : "größe");
            print(arguments[0], settings, 300_000_000, second);
        }
    }

    private static void print(String name, Map<String, Object> settings, long id, GenericRecord record) throws Exception {
        try (AvroKafkaSerializer<GenericRecord> serializer = new AvroKafkaSerializer<>(resolver(id, record.getSchema()))) {
            serializer.configure(settings, false);
            byte[] payload = serializer.serialize("orders", new RecordHeaders(), record);
            System.out.printf(
                "{\"serializer\": \"%s\", \"id\": %d, \"schema\": %s, \"value\": %s, \"payload\": \"%s\"}%n",
                name, id, record.getSchema(), record, Base64.getEncoder().encodeToString(payload));
        }
    }

    @SuppressWarnings("unchecked")
    private static <S, D> SchemaResolver<S, D> resolver(long id, Schema schema) {
        ParsedSchema<Object> parsed = (ParsedSchema<Object>) Proxy.newProxyInstance(
            ApicurioAvroPayloads.class.getClassLoader(), new Class<?>[] {ParsedSchema.class},
            (self, method, values) -> switch (method.getName()) {
                case "getParsedSchema" -> schema;
                case "getRawSchema" -> schema.toString().getBytes();
                default -> null;
            });
        return (SchemaResolver<S, D>) Proxy.newProxyInstance(
            ApicurioAvroPayloads.class.getClassLoader(), new Class<?>[] {SchemaResolver.class},
            (self, method, values) -> method.getName().equals("resolveSchema")
                ? SchemaLookupResult.builder().contentId(id).globalId(id).parsedSchema(parsed).build() : null);
    }
}
