import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Iterator;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;

/**
 * What Kafka's FileRecords says of a .log file, in the words of the golden truth files.
 *
 * A batch that Kafka cannot read has an "error" beside the records that came before it; an error of the iteration from
 * batch to batch, after which Kafka sees nothing more, stands beside the batches.
 */
final class TruthReader {
    private static final int LONGEST_IN_FULL = 40;
    private static final HexFormat HEX = HexFormat.of();

    static ObjectNode read(File file) throws IOException {
        ObjectNode truth = Oracle.JSON.createObjectNode();
        ArrayNode batches = truth.putArray("batches");
        long end = 0;
        try (FileRecords records = FileRecords.open(file, false)) {
            Iterator<FileChannelRecordBatch> iterator = records.batchIterator();
            while (iterator.hasNext()) {
                FileChannelRecordBatch batch = iterator.next();
                end = batch.position() + batch.sizeInBytes();
                batches.add(describe(batch));
            }
        } catch (RuntimeException refused) {
            truth.put("error", refused.toString());
        }
        return truth.put("end", end).put("size", file.length());
    }

    private static ObjectNode describe(FileChannelRecordBatch batch) {
        ObjectNode truth = Oracle.JSON.createObjectNode();
        try {
            truth.put("position", batch.position()).put("size", batch.sizeInBytes()).put("magic", batch.magic());
            truth.put("valid", batch.isValid());
            truth.put("last_offset", batch.lastOffset())
                .put("codec", batch.compressionType().name)
                .put("timestamp_type", batch.timestampType().name)
                .put("max_timestamp", batch.maxTimestamp())
                .put("checksum", batch.checksum())
                .put("producer_id", batch.producerId())
                .put("producer_epoch", batch.producerEpoch())
                .put("base_sequence", batch.baseSequence())
                .put("last_sequence", batch.lastSequence())
                .put("transactional", batch.isTransactional())
                .put("control", batch.isControlBatch())
                .put("partition_leader_epoch", batch.partitionLeaderEpoch())
                .put("count", batch.countOrNull());
            if (batch.deleteHorizonMs().isPresent()) {
                truth.put("delete_horizon_ms", batch.deleteHorizonMs().getAsLong());
            } else {
                truth.putNull("delete_horizon_ms");
            }
            truth.put("base_offset", batch.baseOffset());
            ArrayNode records = truth.putArray("records");
            for (Record record : batch) {
                record.ensureValid();
                records.add(describe(record));
            }
        } catch (RuntimeException | Error refused) {
            // An Error too: that is what the snappy library throws at a chunk of negative size.
            truth.put("error", refused.toString());
        }
        return truth;
    }

    private static ObjectNode describe(Record record) {
        ObjectNode truth = Oracle.JSON.createObjectNode()
            .put("offset", record.offset())
            .put("timestamp", record.timestamp())
            .put("sequence", record.sequence())
            .put("key", shown(record.key()))
            .put("value", shown(record.value()));
        ArrayNode headers = truth.putArray("headers");
        for (Header header : record.headers()) {
            byte[] value = header.value();
            headers.addArray()
                .add(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)))
                .add(value == null ? null : shown(ByteBuffer.wrap(value)));
        }
        return truth;
    }

    private static String shown(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        if (bytes.length <= LONGEST_IN_FULL) {
            return HEX.formatHex(bytes);
        }
        try {
            byte[] digest = MessageDigest.getInstance("SHA-1").digest(bytes);
            return "sha1:" + HEX.formatHex(digest) + ":" + bytes.length;
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
