import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;

/**
 * What Kafka's recovery does to the bytes of a segment, without its indexes and producer state: FILE THREADS ROUNDS.
 *
 * Every batch is read and its CRC checked (ensureValid), its last offset and largest timestamp taken. The file is cut at
 * batch borders into as many slices as there are threads; the cutting is not timed. One JSON line for each round: the first
 * ones run while the JVM still compiles.
 */
final class TimedScan {
    public static void main(String[] arguments) throws Exception {
        File file = new File(arguments[0]);
        int threads = Integer.parseInt(arguments[1]);
        int rounds = Integer.parseInt(arguments[2]);
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try (FileRecords records = FileRecords.open(file, false)) {
            List<FileRecords> slices = slices(records, threads);
            for (int round = 0; round < rounds; round++) {
                long cpu = system.getProcessCpuTime();
                long start = System.nanoTime();
                long batches = scan(pool, slices);
                double seconds = (System.nanoTime() - start) / 1e9;
                double cpuSeconds = (system.getProcessCpuTime() - cpu) / 1e9;
                System.out.printf(
                    "{\"seconds\": %.6f, \"cpu_seconds\": %.6f, \"amount\": %d, \"batches\": %d}%n",
                    seconds, cpuSeconds, records.sizeInBytes(), batches);
            }
        } finally {
            pool.shutdown();
        }
    }

    private static List<FileRecords> slices(FileRecords records, int count) {
        List<FileRecords> slices = new ArrayList<>();
        int start = 0;
        for (FileChannelRecordBatch batch : records.batches()) {
            long border = (long) records.sizeInBytes() * (slices.size() + 1) / count;
            int end = batch.position() + batch.sizeInBytes();
            if (slices.size() < count - 1 && end >= border) {
                slices.add(records.slice(start, end - start));
                start = end;
            }
        }
        slices.add(records.slice(start, records.sizeInBytes() - start));
        return slices;
    }

    private static long scan(ExecutorService pool, List<FileRecords> slices)
            throws InterruptedException, ExecutionException {
        List<Future<Long>> running = new ArrayList<>();
        for (FileRecords slice : slices) {
            running.add(pool.submit(() -> scan(slice)));
        }
        long batches = 0;
        for (Future<Long> one : running) {
            batches += one.get();
        }
        return batches;
    }

    private static long scan(FileRecords records) throws IOException {
        long batches = 0;
        long lastOffset = -1;
        long maxTimestamp = -1;
        for (FileChannelRecordBatch batch : records.batches()) {
            batch.ensureValid();
            if (batch.lastOffset() <= lastOffset) {
                throw new IllegalStateException("offsets do not increase at " + batch.position());
            }
            lastOffset = batch.lastOffset();
            maxTimestamp = Math.max(maxTimestamp, batch.maxTimestamp());
            batches++;
        }
        return batches;
    }
}
