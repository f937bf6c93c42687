import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;

/**
 * Control records from and to {"type": a ControlRecordType, "timestamp": ms, "message": as Kafka's JSON converters have it}.
 *
 * A leader change is taken in the version that it names. Kafka's schema has 0 and 1; ControlRecordUtils and the builder of
 * this release know only 0, so the schema's own class is used here.
 */
final class ControlRecords {
    static void append(MemoryRecordsBuilder builder, JsonNode control) {
        long timestamp = control.path("timestamp").asLong(0);
        JsonNode message = control.get("message");
        ControlRecordType type = ControlRecordType.valueOf(control.get("type").asText());
        switch (type) {
            case ABORT:
            case COMMIT:
                int epoch = message.get("coordinatorEpoch").asInt();
                builder.appendEndTxnMarker(timestamp, new EndTransactionMarker(type, epoch));
                return;
            case LEADER_CHANGE:
                short version = (short) message.get("version").asInt();
                LeaderChangeMessage change = LeaderChangeMessageJsonConverter.read(message, version);
                builder.appendControlRecord(timestamp, type, MessageUtil.toByteBufferAccessor(change, version).buffer());
                return;
            case SNAPSHOT_HEADER:
                builder.appendSnapshotHeaderMessage(
                    timestamp,
                    SnapshotHeaderRecordJsonConverter.read(message, ControlRecordUtils.SNAPSHOT_HEADER_CURRENT_VERSION));
                return;
            case SNAPSHOT_FOOTER:
                builder.appendSnapshotFooterMessage(
                    timestamp,
                    SnapshotFooterRecordJsonConverter.read(message, ControlRecordUtils.SNAPSHOT_FOOTER_CURRENT_VERSION));
                return;
            case KRAFT_VERSION:
                builder.appendKRaftVersionMessage(
                    timestamp,
                    KRaftVersionRecordJsonConverter.read(message, ControlRecordUtils.KRAFT_VERSION_CURRENT_VERSION));
                return;
            case KRAFT_VOTERS:
                builder.appendVotersMessage(
                    timestamp,
                    VotersRecordJsonConverter.read(message, ControlRecordUtils.KRAFT_VOTERS_CURRENT_VERSION));
                return;
            default:
                throw new IllegalArgumentException("no control record of type " + type);
        }
    }

    static ObjectNode describe(JsonNode command) {
        ControlRecordType type = ControlRecordType.parse(ByteBuffer.wrap(BatchWriter.bytes(command.get("key"))));
        ByteBuffer value = ByteBuffer.wrap(BatchWriter.bytes(command.get("value")));
        ObjectNode answer = Oracle.JSON.createObjectNode().put("type", type.name());
        switch (type) {
            case LEADER_CHANGE:
                short version = value.getShort(0);
                return answer.set("message", LeaderChangeMessageJsonConverter.write(
                    new LeaderChangeMessage(new ByteBufferAccessor(value), version), version));
            case SNAPSHOT_HEADER:
                return answer.set("message", SnapshotHeaderRecordJsonConverter.write(
                    ControlRecordUtils.deserializeSnapshotHeaderRecord(value),
                    ControlRecordUtils.SNAPSHOT_HEADER_CURRENT_VERSION));
            case SNAPSHOT_FOOTER:
                return answer.set("message", SnapshotFooterRecordJsonConverter.write(
                    ControlRecordUtils.deserializeSnapshotFooterRecord(value),
                    ControlRecordUtils.SNAPSHOT_FOOTER_CURRENT_VERSION));
            case KRAFT_VERSION:
                return answer.set("message", KRaftVersionRecordJsonConverter.write(
                    ControlRecordUtils.deserializeKRaftVersionRecord(value),
                    ControlRecordUtils.KRAFT_VERSION_CURRENT_VERSION));
            case KRAFT_VOTERS:
                return answer.set("message", VotersRecordJsonConverter.write(
                    ControlRecordUtils.deserializeVotersRecord(value),
                    ControlRecordUtils.KRAFT_VOTERS_CURRENT_VERSION));
            default:
                return answer;
        }
    }
}
