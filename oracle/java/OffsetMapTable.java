import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;

/**
 * Kafka's offset map after some puts: {"memory": BYTES, "puts": [[KEY, OFFSET], ..], "asked": [KEY, ..]}, keys in hex.
 *
 * Answers the whole `table` in hex, the `size`, the `latest_offset`, and the `offsets` of the keys that were asked for.
 */
final class OffsetMapTable {
    static ObjectNode fill(JsonNode command) throws Exception {
        SkimpyOffsetMap map = new SkimpyOffsetMap(command.get("memory").asInt());
        for (JsonNode put : command.get("puts")) {
            map.put(bytes(put.get(0)), put.get(1).asLong());
        }
        ObjectNode told = Oracle.JSON.createObjectNode();
        told.put("size", map.size());
        told.put("latest_offset", map.latestOffset());
        told.put("table", HexFormat.of().formatHex(table(map)));
        ArrayNode offsets = told.putArray("offsets");
        for (JsonNode key : command.get("asked")) {
            offsets.add(map.get(bytes(key)));
        }
        return told;
    }

    private static ByteBuffer bytes(JsonNode hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex.asText()));
    }

    private static byte[] table(SkimpyOffsetMap map) throws ReflectiveOperationException {
        Field field = SkimpyOffsetMap.class.getDeclaredField("bytes");
        field.setAccessible(true);
        return ((ByteBuffer) field.get(map)).array();
    }
}
