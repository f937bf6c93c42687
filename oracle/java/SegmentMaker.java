import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.util.SplittableRandom;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * A segment for the benchmarks, the same bytes for the same arguments: FILE CODEC RECORDS SEED.
 *
 * A record is a key of 10 bytes and a value of 90, a small JSON document. Batches close as those of the Java producer do: at
 * 16,384 bytes (batch.size), which for compressed ones is foretold from the ratio of the batch before.
 */
final class SegmentMaker {
    private static final int BATCH_BYTES = 16384;
    private static final int FIRST_KEY = 1_000_000;
    private static final int KEYS = 1_000_000;
    private static final int VALUE_BYTES = 90;
    private static final long FIRST_TIMESTAMP_MS = 1_700_000_000_000L;
    private static final String[] STATES = {"created", "paid", "packed", "shipped", "returned"};

    public static void main(String[] arguments) throws IOException {
        File file = new File(arguments[0]);
        Compression compression = BatchWriter.compression(arguments[1], null);
        long wanted = Long.parseLong(arguments[2]);
        SplittableRandom random = new SplittableRandom(Long.parseLong(arguments[3]));

        long records = 0;
        long batches = 0;
        long timestamp = FIRST_TIMESTAMP_MS;
        float ratio = 1.0f;
        try (FileChannel channel = new FileOutputStream(file).getChannel()) {
            ByteBufferOutputStream stream = new ByteBufferOutputStream(1 << 18);
            byte[] key = key(random);
            byte[] value = value(random);
            while (records < wanted) {
                stream.position(0);
                try (MemoryRecordsBuilder builder = builder(stream, compression, records)) {
                    builder.setEstimatedCompressionRatio(ratio);
                    while (records < wanted && builder.hasRoomFor(timestamp, key, value, Record.EMPTY_HEADERS)) {
                        builder.append(timestamp, key, value);
                        records++;
                        timestamp += random.nextInt(3);
                        key = key(random);
                        value = value(random);
                    }
                    ByteBuffer bytes = builder.build().buffer().duplicate();
                    ratio = (float) builder.compressionRatio();
                    while (bytes.hasRemaining()) {
                        channel.write(bytes);
                    }
                    batches++;
                }
            }
        }
        System.out.printf("{\"records\": %d, \"batches\": %d, \"bytes\": %d}%n", records, batches, file.length());
    }

    private static MemoryRecordsBuilder builder(ByteBufferOutputStream stream, Compression compression, long baseOffset) {
        return new MemoryRecordsBuilder(
            stream,
            RecordBatch.CURRENT_MAGIC_VALUE,
            compression,
            TimestampType.CREATE_TIME,
            baseOffset,
            RecordBatch.NO_TIMESTAMP,
            RecordBatch.NO_PRODUCER_ID,
            RecordBatch.NO_PRODUCER_EPOCH,
            RecordBatch.NO_SEQUENCE,
            false,
            false,
            0,
            BATCH_BYTES);
    }

    private static byte[] key(SplittableRandom random) {
        return ("key" + (FIRST_KEY + random.nextInt(KEYS))).getBytes(StandardCharsets.US_ASCII);
    }

    private static byte[] value(SplittableRandom random) {
        StringBuilder text = new StringBuilder(VALUE_BYTES + 16);
        text.append("{\"state\":\"").append(STATES[random.nextInt(STATES.length)]);
        text.append("\",\"customer\":").append(random.nextInt(100_000));
        text.append(",\"cents\":").append(random.nextInt(1_000_000)).append(",\"note\":\"");
        while (text.length() < VALUE_BYTES - 2) {
            text.append((char) ('a' + random.nextInt(26)));
        }
        text.setLength(VALUE_BYTES - 2);
        return text.append("\"}").toString().getBytes(StandardCharsets.US_ASCII);
    }
}
