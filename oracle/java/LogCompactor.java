import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.security.GeneralSecurityException;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

/**
 * Kafka's Cleaner on partition folders, with the time that it is told:
 *
 * <pre>
 * {"jobs": [{"folder": F, "configs": {topic configs; internal.segment.bytes too},
 *            "log_start_offset": 0, "clean_shutdown": true, "roll": false,
 *            "passes": [{"now_ms": MS, "first_dirty_offset": null, "first_uncleanable_offset": null, "map_bytes": 134217728,
 *                        "load_factor": 0.9, "buffer_bytes": 262144, "max_buffer_bytes": 1048588, "rounds": 1}, ..]}, ..]}
 * </pre>
 *
 * All but folder, passes and now_ms may be left out. Offsets that are not given are those that Kafka's cleaner manager finds at
 * that time, after the checkpoint that it has: the end of the pass before, or nothing. A pass goes on for so many rounds
 * (0: no limit) until its end is the first uncleanable offset; none where nothing is dirty. With "roll" the active segment is closed first, so that all
 * can be cleaned. The answer has for each job its "passes", each a list of rounds, and offsets of the log, or a "failure";
 * the folder is left closed cleanly, old files gone.
 */
final class LogCompactor {
    private static final int DEFAULT_MAP_BYTES = (int) CleanerConfig.LOG_CLEANER_DEDUPE_BUFFER_SIZE;
    private static final int DEFAULT_BUFFER_BYTES = CleanerConfig.LOG_CLEANER_IO_BUFFER_SIZE / 2;
    /** message.max.bytes of a broker. */
    private static final int DEFAULT_MAX_BUFFER_BYTES = 1048588;

    static ObjectNode compact(JsonNode command) {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ArrayNode logs = answer.putArray("logs");
        for (JsonNode job : command.get("jobs")) {
            try {
                logs.add(run(job));
            } catch (Exception | Error failure) {
                logs.addObject().put("failure", failure.toString());
            }
        }
        return answer;
    }

    private static ObjectNode run(JsonNode job) throws Exception {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        SetClock clock = new SetClock(job.get("passes").get(0).get("now_ms").asLong());
        try (OpenedLog opened = OpenedLog.open(
                new File(job.get("folder").asText()),
                job.path("configs"),
                job.path("log_start_offset").asLong(0),
                job.path("clean_shutdown").asBoolean(true),
                clock)) {
            UnifiedLog log = opened.log();
            if (job.path("roll").asBoolean(false)) {
                log.roll();
            }
            Optional<Long> checkpoint = Optional.empty();
            ArrayNode passes = answer.putArray("passes");
            for (JsonNode pass : job.get("passes")) {
                clock.set(pass.get("now_ms").asLong());
                ArrayNode rounds = passes.addArray();
                checkpoint = Optional.of(clean(log, pass, checkpoint, clock, rounds));
                opened.runScheduled();
            }
            answer.put("log_start_offset", log.logStartOffset())
                .put("last_stable_offset", log.lastStableOffset())
                .put("log_end_offset", log.logEndOffset());
        }
        return answer;
    }

    private static long clean(UnifiedLog log, JsonNode pass, Optional<Long> checkpoint, Time clock, ArrayNode rounds)
            throws Exception {
        Range range = cleanableRange(log, checkpoint, clock.milliseconds());
        long dirty = pass.hasNonNull("first_dirty_offset") ? pass.get("first_dirty_offset").asLong() : range.firstDirty();
        long uncleanable = pass.hasNonNull("first_uncleanable_offset")
            ? pass.get("first_uncleanable_offset").asLong()
            : range.firstUncleanable();
        Cleaner cleaner = cleaner(
            pass.path("map_bytes").asInt(DEFAULT_MAP_BYTES),
            pass.path("load_factor").asDouble(CleanerConfig.LOG_CLEANER_DEDUPE_BUFFER_LOAD_FACTOR),
            pass.path("buffer_bytes").asInt(DEFAULT_BUFFER_BYTES),
            pass.path("max_buffer_bytes").asInt(DEFAULT_MAX_BUFFER_BYTES),
            clock);
        int most = pass.path("rounds").asInt(1);
        // It rounds down to where a segment starts, so that it may not be above the first dirty offset.
        LogToClean part = new LogToClean(log, dirty, uncleanable, false);
        while (dirty < part.firstUncleanableOffset() && (most == 0 || rounds.size() < most)) {
            ObjectNode round = rounds.addObject()
                .put("first_dirty_offset", part.firstDirtyOffset())
                .put("first_uncleanable_offset", part.firstUncleanableOffset())
                .put("clean_bytes", part.cleanBytes())
                .put("cleanable_bytes", part.cleanableBytes())
                .put("cleanable_ratio", part.cleanableRatio());
            long end = clean(cleaner, part, clock.milliseconds(), round);
            if (end <= dirty) {
                throw new IllegalStateException("a round from " + dirty + " ended at " + end);
            }
            dirty = end;
            part = new LogToClean(log, dirty, uncleanable, false);
        }
        return dirty;
    }

    /** Cleans once, and tells the next first dirty offset and what Kafka counted. */
    static long clean(Cleaner cleaner, LogToClean part, long nowMs, ObjectNode told)
            throws IOException, GeneralSecurityException {
        long start = System.nanoTime();
        Map.Entry<Long, CleanerStats> cleaned = cleaner.doClean(part, nowMs);
        double seconds = (System.nanoTime() - start) / 1e9;
        CleanerStats stats = cleaned.getValue();
        told.put("end_offset", cleaned.getKey())
            .put("seconds", seconds)
            .put("map_seconds", stats.elapsedIndexSecs())
            .put("map_messages_read", stats.mapMessagesRead())
            .put("map_fill", stats.bufferUtilization())
            .put("bytes_read", stats.bytesRead())
            .put("bytes_written", stats.bytesWritten())
            .put("messages_read", stats.messagesRead())
            .put("messages_written", stats.messagesWritten())
            .put("invalid_messages_read", stats.invalidMessagesRead());
        return cleaned.getKey();
    }

    static Cleaner cleaner(int mapBytes, double loadFactor, int bufferBytes, int maxBufferBytes, Time clock)
            throws GeneralSecurityException {
        Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", clock);
        SkimpyOffsetMap map = new SkimpyOffsetMap(mapBytes);
        return new Cleaner(0, map, bufferBytes, maxBufferBytes, loadFactor, unlimited, clock, partition -> { });
    }

    static Cleaner cleaner(int mapBytes, Time clock) throws GeneralSecurityException {
        double loadFactor = CleanerConfig.LOG_CLEANER_DEDUPE_BUFFER_LOAD_FACTOR;
        return cleaner(mapBytes, loadFactor, DEFAULT_BUFFER_BYTES, DEFAULT_MAX_BUFFER_BYTES, clock);
    }

    record Range(long firstDirty, long firstUncleanable) { }

    /** What Kafka's cleaner manager would give its cleaner. */
    static Range cleanableRange(UnifiedLog log, Optional<Long> checkpoint, long nowMs) throws Exception {
        Method cleanableOffsets =
            LogCleanerManager.class.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        cleanableOffsets.setAccessible(true);
        Object found = cleanableOffsets.invoke(null, log, checkpoint, nowMs);
        return new Range(offset(found, "firstDirtyOffset"), offset(found, "firstUncleanableDirtyOffset"));
    }

    private static long offset(Object found, String name) throws ReflectiveOperationException {
        Method accessor = found.getClass().getDeclaredMethod(name);
        accessor.setAccessible(true);
        return (long) accessor.invoke(found);
    }
}
