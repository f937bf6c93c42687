import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Kafka's cleaner at work on one partition folder after the other, one thread: MAP_BYTES CONFIGS FOLDER..
 *
 * CONFIGS are topic configs as a JSON object. Each folder is recovered and its active segment closed, which is not timed, and
 * then cleaned once, all of it. One JSON line for each: the folders before the last are there to warm up the JVM. The
 * folders are changed.
 */
final class TimedCompaction {
    public static void main(String[] arguments) throws Exception {
        Cleaner cleaner = LogCompactor.cleaner(Integer.parseInt(arguments[0]), Time.SYSTEM);
        for (int i = 2; i < arguments.length; i++) {
            System.out.println(Oracle.JSON.writeValueAsString(clean(cleaner, arguments[1], new File(arguments[i]))));
        }
    }

    private static ObjectNode clean(Cleaner cleaner, String configs, File folder) throws Exception {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        ObjectNode told = Oracle.JSON.createObjectNode();
        try (OpenedLog opened = OpenedLog.open(folder, Oracle.JSON.readTree(configs), 0, false, Time.SYSTEM)) {
            UnifiedLog log = opened.log();
            log.roll();
            LogToClean all = new LogToClean(log, log.logStartOffset(), log.logEndOffset(), false);
            told.put("amount", all.cleanableBytes());
            long cpu = system.getProcessCpuTime();
            LogCompactor.clean(cleaner, all, System.currentTimeMillis(), told);
            told.put("cpu_seconds", (system.getProcessCpuTime() - cpu) / 1e9);
            if (told.get("end_offset").asLong() != log.logEndOffset()) {
                throw new IllegalStateException("the map was too small: cleaned up to " + told.get("end_offset"));
            }
        }
        return told;
    }
}
