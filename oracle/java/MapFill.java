import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;

/**
 * Kafka's offset map, filled with the keys of a segment, one thread: MAP_BYTES SOURCE FILE ROUNDS.
 *
 * SOURCE is `file`: read as the cleaner does it in its first pass, a buffer at a time, without looking at the CRCs. Or it is
 * `memory`: the keys lie in memory before the clock starts, one after the other. One JSON line for each round: the first
 * ones run while the JVM still compiles.
 */
final class MapFill {
    private static final int READ_BUFFER_BYTES = 256 * 1024;

    private interface Sink {
        void put(ByteBuffer key, long offset) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        SkimpyOffsetMap map = new SkimpyOffsetMap(Integer.parseInt(arguments[0]));
        boolean isInMemory = arguments[1].equals("memory");
        int rounds = Integer.parseInt(arguments[3]);
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        try (FileRecords records = FileRecords.open(new File(arguments[2]), false)) {
            Keys keys = new Keys();
            if (isInMemory) {
                readKeys(records, keys::add);
            }
            for (int round = 0; round < rounds; round++) {
                map.clear();
                long cpu = system.getProcessCpuTime();
                long start = System.nanoTime();
                long count = isInMemory ? keys.putInto(map) : readKeys(records, map::put);
                ObjectNode told = Oracle.JSON.createObjectNode();
                told.put("seconds", (System.nanoTime() - start) / 1e9);
                told.put("cpu_seconds", (system.getProcessCpuTime() - cpu) / 1e9);
                told.put("amount", count);
                told.put("distinct", map.size());
                System.out.println(Oracle.JSON.writeValueAsString(told));
            }
        }
    }

    private static long readKeys(FileRecords records, Sink sink) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(READ_BUFFER_BYTES);
        BufferSupplier decompression = BufferSupplier.create();
        long count = 0;
        int position = 0;
        while (position < records.sizeInBytes()) {
            buffer.clear();
            records.readInto(buffer, position);
            int before = position;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
                try (CloseableIterator<Record> batchRecords = batch.streamingIterator(decompression)) {
                    while (batchRecords.hasNext()) {
                        Record record = batchRecords.next();
                        if (record.hasKey()) {
                            sink.put(record.key(), record.offset());
                            count++;
                        }
                    }
                }
                position += batch.sizeInBytes();
            }
            if (position == before) {
                throw new IOException("no whole batch at " + position);
            }
        }
        return count;
    }

    /** Keys one after the other, as an array holds them. */
    private static final class Keys {
        private byte[] bytes = new byte[1 << 20];
        private int[] ends = new int[1 << 20];
        private long[] offsets = new long[1 << 20];
        private int count = 0;

        void add(ByteBuffer key, long offset) {
            if (count == ends.length) {
                ends = Arrays.copyOf(ends, 2 * count);
                offsets = Arrays.copyOf(offsets, 2 * count);
            }
            int start = count == 0 ? 0 : ends[count - 1];
            int end = start + key.remaining();
            if (end > bytes.length) {
                bytes = Arrays.copyOf(bytes, Math.max(end, 2 * bytes.length));
            }
            key.get(bytes, start, end - start);
            ends[count] = end;
            offsets[count] = offset;
            count++;
        }

        long putInto(SkimpyOffsetMap map) throws Exception {
            ByteBuffer key = ByteBuffer.wrap(bytes);
            int start = 0;
            for (int i = 0; i < count; i++) {
                key.limit(ends[i]).position(start);
                map.put(key, offsets[i]);
                start = ends[i];
            }
            return count;
        }
    }
}
