import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's log on a partition folder, without a broker. All records count as replicated. What a broker does later (deleting
 * old files, above all) is done when asked and at the end; what it does now and again is never done.
 */
final class OpenedLog implements AutoCloseable {
    private static final int MAX_TRANSACTION_MS = 900_000;
    private static final int PRODUCER_EXPIRATION_MS = 86_400_000;
    private static final int PRODUCER_CHECK_MS = 600_000;

    private final UnifiedLog log;
    private final Postponed postponed;

    private OpenedLog(UnifiedLog log, Postponed postponed) {
        this.log = log;
        this.postponed = postponed;
    }

    /** An unclean shutdown lets Kafka recover everything, with new indexes. */
    static OpenedLog open(File folder, JsonNode configs, long logStartOffset, boolean cleanShutdown, Time clock)
            throws IOException {
        Map<String, String> settings = new HashMap<>();
        configs.properties().forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        Postponed postponed = new Postponed();
        UnifiedLog log = UnifiedLog.create(
            folder,
            new LogConfig(settings),
            logStartOffset,
            0L,
            postponed,
            new BrokerTopicStats(),
            clock,
            MAX_TRANSACTION_MS,
            new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false),
            PRODUCER_CHECK_MS,
            new LogDirFailureChannel(1),
            cleanShutdown,
            Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        return new OpenedLog(log, postponed);
    }

    UnifiedLog log() {
        return log;
    }

    void runScheduled() {
        postponed.run();
    }

    @Override
    public void close() {
        postponed.run();
        log.close();
        log.removeLogMetrics();
    }

    private static final class Postponed implements Scheduler {
        private final Queue<Runnable> tasks = new ArrayDeque<>();

        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) {
                tasks.add(task);
            }
            return new NeverDone();
        }

        @Override
        public void resizeThreadPool(int threads) { }

        void run() {
            for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
                task.run();
            }
        }
    }

    /** For the log to cancel. */
    private static final class NeverDone extends CompletableFuture<Object> implements ScheduledFuture<Object> {
        @Override
        public long getDelay(TimeUnit unit) {
            return Long.MAX_VALUE;
        }

        @Override
        public int compareTo(Delayed other) {
            return Long.compare(getDelay(TimeUnit.NANOSECONDS), other.getDelay(TimeUnit.NANOSECONDS));
        }
    }
}
