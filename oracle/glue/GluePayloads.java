import com.amazonaws.services.schemaregistry.common.configs.GlueSchemaRegistryConfiguration;
import com.amazonaws.services.schemaregistry.serializers.SerializationDataEncoder;
import com.amazonaws.services.schemaregistry.serializers.avro.AvroSerializer;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;

/**
 * Payloads as AWS Glue's serializer for Kafka writes them, one JSON line each. The serializer asks Glue for the UUID of a
 * schema version; here the UUID is given, and what puts it in front of the payload and compresses is AWS's own.
 */
public final class GluePayloads {
    private static final String FIRST =
        "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"int\"}]}";
    private static final String SECOND =
        "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"},"
            + "{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}]}";

    public static void main(String[] arguments) {
        for (String compression : List.of("NONE", "ZLIB")) {
            for (int number : new int[] {0, -1, 2_000_000_000}) {
                GenericRecord first = new GenericData.Record(new Schema.Parser().parse(FIRST));
                first.put("id", number);
                print(compression, UUID.fromString("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"), FIRST, first);
                GenericRecord second = new GenericData.Record(new Schema.Parser().parse(SECOND));
                second.put("id", 3L * number);
                second.put("note", number == 0 ? null : "größe ".repeat(100));
                print(compression, UUID.fromString("00000000-ffff-4e4a-8001-000000000001"), SECOND, second);
            }
        }
    }

    private static void print(String compression, UUID version, String schema, GenericRecord record) {
        GlueSchemaRegistryConfiguration configuration =
            new GlueSchemaRegistryConfiguration(Map.of("region", "eu-west-1", "compression", compression));
        byte[] payload = new SerializationDataEncoder(configuration).write(new AvroSerializer().serialize(record), version);
        System.out.printf(
            "{\"compression\": \"%s\", \"version\": \"%s\", \"schema\": %s, \"value\": %s, \"payload\": \"%s\"}%n",
            compression, version, schema, record, Base64.getEncoder().encodeToString(payload));
    }
}
