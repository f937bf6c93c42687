import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Payloads as Kafka Connect's JSON converter writes them, and what it reads back: one JSON line each, of random schemas
 * of all of Connect's types. The arguments are a first seed, how many schemas, and the decimal format.
 *
 * What was read is in plain JSON: bytes in base64, decimals as text, dates and times as numbers of their unit, floats as
 * text, maps as arrays of pairs.
 */
public final class ConnectPayloads {
    private static final JsonNodeFactory JSON = JsonNodeFactory.withExactBigDecimals(true);
    private static final int ROWS = 20;
    private static final int DEEPEST = 3;

    public static void main(String[] arguments) throws Exception {
        long first = Long.parseLong(arguments[0]);
        ObjectMapper mapper = new ObjectMapper();
        try (JsonConverter converter = new JsonConverter()) {
            converter.configure(Map.of("schemas.enable", "true", "decimal.format", arguments[2]), false);
            for (long seed = first; seed < first + Long.parseLong(arguments[1]); seed++) {
                Random random = new Random(seed);
                Schema schema = type(random, 0, true);
                for (int row = 0; row < ROWS; row++) {
                    byte[] payload = converter.fromConnectData("topic", schema, value(random, schema));
                    Object read = converter.toConnectData("topic", payload).value();
                    ObjectNode line = JSON.objectNode();
                    line.put("seed", seed).put("payload", Base64.getEncoder().encodeToString(payload));
                    line.set("read", plain(schema, read));
                    System.out.println(mapper.writeValueAsString(line));
                }
            }
        }
    }

    private static Schema type(Random random, int depth, boolean isOutermost) {
        int kind = random.nextInt(depth < DEEPEST ? 16 : 13);
        if (isOutermost && random.nextInt(4) > 0) {
            kind = 15;
        }
        SchemaBuilder builder = switch (kind) {
            case 0 -> SchemaBuilder.int8();
            case 1 -> SchemaBuilder.int16();
            case 2 -> SchemaBuilder.int32();
            case 3 -> SchemaBuilder.int64();
            case 4 -> SchemaBuilder.float32();
            case 5 -> SchemaBuilder.float64();
            case 6 -> SchemaBuilder.bool();
            case 7 -> SchemaBuilder.string();
            case 8 -> SchemaBuilder.bytes();
            case 9 -> Decimal.builder(random.nextInt(7));
            case 10 -> Date.builder();
            case 11 -> Time.builder();
            case 12 -> Timestamp.builder();
            case 13 -> SchemaBuilder.array(type(random, depth + 1, false));
            case 14 -> SchemaBuilder.map(key(random), type(random, depth + 1, false));
            default -> struct(random, depth);
        };
        return random.nextBoolean() ? builder.optional().build() : builder.build();
    }

    private static Schema key(Random random) {
        return List.of(Schema.STRING_SCHEMA, Schema.INT32_SCHEMA, Schema.INT64_SCHEMA, Schema.BOOLEAN_SCHEMA)
            .get(random.nextInt(4));
    }

    private static SchemaBuilder struct(Random random, int depth) {
        SchemaBuilder builder = SchemaBuilder.struct();
        int count = random.nextInt(6);
        for (int number = 0; number < count; number++) {
            builder.field(number == 0 ? "größe" : "f" + number, type(random, depth + 1, false));
        }
        return builder;
    }

    private static Object value(Random random, Schema schema) {
        if (schema.isOptional() && random.nextInt(4) == 0) {
            return null;
        }
        if (Decimal.LOGICAL_NAME.equals(schema.name())) {
            return new BigDecimal(new BigInteger(random.nextInt(100), random), Decimal.schema(0).equals(schema) ? 0
                : Integer.parseInt(schema.parameters().get(Decimal.SCALE_FIELD))).multiply(BigDecimal.valueOf(random.nextInt(3) - 1));
        }
        if (Date.LOGICAL_NAME.equals(schema.name())) {
            return Date.toLogical(schema, random.nextInt(200_000) - 100_000);
        }
        if (Time.LOGICAL_NAME.equals(schema.name())) {
            return Time.toLogical(schema, random.nextInt(86_400_000));
        }
        if (Timestamp.LOGICAL_NAME.equals(schema.name())) {
            return Timestamp.toLogical(schema, (random.nextLong() >> 20));
        }
        return switch (schema.type()) {
            case INT8 -> (byte) random.nextInt();
            case INT16 -> (short) random.nextInt();
            case INT32 -> random.nextInt();
            case INT64 -> random.nextLong() >> random.nextInt(64);
            case FLOAT32 -> Float.intBitsToFloat(random.nextInt() & 0x7f7fffff);
            case FLOAT64 -> Double.longBitsToDouble(random.nextLong() & 0x7fefffffffffffffL) * (random.nextBoolean() ? 1 : -1);
            case BOOLEAN -> random.nextBoolean();
            case STRING -> "größe 🐘 \"\\\n".substring(0, random.nextInt(6)) + random.nextInt(100);
            case BYTES -> bytes(random);
            case ARRAY -> list(random, schema);
            case MAP -> map(random, schema);
            case STRUCT -> filled(random, schema);
        };
    }

    private static byte[] bytes(Random random) {
        byte[] found = new byte[random.nextInt(9)];
        random.nextBytes(found);
        return found;
    }

    private static List<Object> list(Random random, Schema schema) {
        List<Object> found = new ArrayList<>();
        for (int count = random.nextInt(4); count > 0; count--) {
            found.add(value(random, schema.valueSchema()));
        }
        return found;
    }

    private static Map<Object, Object> map(Random random, Schema schema) {
        Map<Object, Object> found = new LinkedHashMap<>();
        for (int count = random.nextInt(4); count > 0; count--) {
            found.put(value(random, schema.keySchema()), value(random, schema.valueSchema()));
        }
        return found;
    }

    private static Struct filled(Random random, Schema schema) {
        Struct found = new Struct(schema);
        for (Field field : schema.fields()) {
            found.put(field, value(random, field.schema()));
        }
        return found;
    }

    private static JsonNode plain(Schema schema, Object value) {
        if (value == null) {
            return JSON.nullNode();
        }
        if (Decimal.LOGICAL_NAME.equals(schema.name())) {
            return JSON.textNode(((BigDecimal) value).toPlainString());
        }
        if (Date.LOGICAL_NAME.equals(schema.name())) {
            return JSON.numberNode(Date.fromLogical(schema, (java.util.Date) value));
        }
        if (Time.LOGICAL_NAME.equals(schema.name())) {
            return JSON.numberNode(Time.fromLogical(schema, (java.util.Date) value));
        }
        if (Timestamp.LOGICAL_NAME.equals(schema.name())) {
            return JSON.numberNode(Timestamp.fromLogical(schema, (java.util.Date) value));
        }
        switch (schema.type()) {
            case FLOAT32, FLOAT64:
                return JSON.textNode(Double.toString(((Number) value).doubleValue()));
            case INT8, INT16, INT32, INT64:
                return JSON.numberNode(((Number) value).longValue());
            case BOOLEAN:
                return JSON.booleanNode((Boolean) value);
            case STRING:
                return JSON.textNode((String) value);
            case BYTES:
                byte[] bytes = value instanceof ByteBuffer buffer ? buffer.array() : (byte[]) value;
                return JSON.textNode(Base64.getEncoder().encodeToString(bytes));
            case ARRAY:
                ArrayNode items = JSON.arrayNode();
                ((List<?>) value).forEach(item -> items.add(plain(schema.valueSchema(), item)));
                return items;
            case MAP:
                ArrayNode pairs = JSON.arrayNode();
                ((Map<?, ?>) value).forEach((key, item) ->
                    pairs.addArray().add(plain(schema.keySchema(), key)).add(plain(schema.valueSchema(), item)));
                return pairs;
            default:
                ObjectNode fields = JSON.objectNode();
                for (Field field : schema.fields()) {
                    fields.set(field.name(), plain(field.schema(), ((Struct) value).get(field)));
                }
                return fields;
        }
    }
}
