import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Batches as Kafka's MemoryRecordsBuilder writes them, from a description:
 *
 * <pre>
 * {"magic": 2, "codec": "zstd", "level": 3, "base_offset": 0, "append_time": null, "producer_id": -1, "producer_epoch": -1,
 *  "base_sequence": -1, "transactional": false, "leader_epoch": -1, "delete_horizon_ms": null, "last_offset": null,
 *  "records": [{"offset": 0, "timestamp": 1, "key": HEX, "value": HEX, "headers": [[HEX, HEX], ..]}, ..]}
 * </pre>
 *
 * All but magic and records may be left out. With "control" (see ControlRecords) instead of records, a control batch; with
 * no records, the empty batch that a cleaner leaves behind.
 */
final class BatchWriter {
    private static final HexFormat HEX = HexFormat.of();

    static ObjectNode write(File file, JsonNode batches) throws IOException {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ArrayNode sizes = answer.putArray("sizes");
        try (FileChannel channel = new FileOutputStream(file).getChannel()) {
            for (JsonNode description : batches) {
                ByteBuffer bytes = encode(description);
                sizes.add(bytes.remaining());
                while (bytes.hasRemaining()) {
                    channel.write(bytes);
                }
            }
        }
        return answer;
    }

    private static ByteBuffer encode(JsonNode batch) throws IOException {
        if (!batch.has("control") && batch.get("records").isEmpty()) {
            return encodeEmpty(batch);
        }
        boolean logAppendTime = batch.hasNonNull("append_time");
        try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                new ByteBufferOutputStream(1 << 16),
                (byte) batch.get("magic").asInt(),
                compression(batch.path("codec").asText("none"), batch.get("level")),
                logAppendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                batch.path("base_offset").asLong(0),
                logAppendTime ? batch.get("append_time").asLong() : RecordBatch.NO_TIMESTAMP,
                batch.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID),
                (short) batch.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
                batch.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE),
                batch.path("transactional").asBoolean(false),
                batch.has("control"),
                batch.path("leader_epoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH),
                Integer.MAX_VALUE,
                batch.path("delete_horizon_ms").asLong(RecordBatch.NO_TIMESTAMP))) {
            if (batch.has("control")) {
                ControlRecords.append(builder, batch.get("control"));
            } else {
                for (JsonNode record : batch.get("records")) {
                    append(builder, record);
                }
            }
            if (batch.hasNonNull("last_offset")) {
                builder.overrideLastOffset(batch.get("last_offset").asLong());
            }
            return builder.build().buffer();
        }
    }

    private static ByteBuffer encodeEmpty(JsonNode batch) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer,
            RecordBatch.MAGIC_VALUE_V2,
            batch.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID),
            (short) batch.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
            batch.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE),
            batch.path("base_offset").asLong(0),
            batch.get("last_offset").asLong(),
            batch.path("leader_epoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH),
            TimestampType.CREATE_TIME,
            batch.get("timestamp").asLong(),
            batch.path("transactional").asBoolean(false),
            false);
        buffer.flip();
        return buffer;
    }

    static Compression compression(String codec, JsonNode level) {
        boolean asked = level != null && !level.isNull();
        switch (CompressionType.forName(codec)) {
            case GZIP:
                return asked ? Compression.gzip().level(level.asInt()).build() : Compression.gzip().build();
            case LZ4:
                return asked ? Compression.lz4().level(level.asInt()).build() : Compression.lz4().build();
            case ZSTD:
                return asked ? Compression.zstd().level(level.asInt()).build() : Compression.zstd().build();
            default:
                return Compression.of(codec).build();
        }
    }

    private static void append(MemoryRecordsBuilder builder, JsonNode record) {
        JsonNode described = record.path("headers");
        Header[] headers = new Header[described.size()];
        for (int i = 0; i < headers.length; i++) {
            String key = new String(bytes(described.get(i).get(0)), StandardCharsets.UTF_8);
            headers[i] = new RecordHeader(key, bytes(described.get(i).get(1)));
        }
        builder.appendWithOffset(
            record.get("offset").asLong(),
            record.get("timestamp").asLong(),
            bytes(record.get("key")),
            bytes(record.get("value")),
            headers);
    }

    static byte[] bytes(JsonNode hex) {
        return hex == null || hex.isNull() ? null : HEX.parseHex(hex.asText());
    }
}
