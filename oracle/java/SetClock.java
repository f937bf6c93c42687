import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A wall clock that stands still until it is set. Nanoseconds run as ever; nobody can sleep by it. */
final class SetClock implements Time {
    private volatile long nowMs;

    SetClock(long nowMs) {
        this.nowMs = nowMs;
    }

    void set(long milliseconds) {
        nowMs = milliseconds;
    }

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return System.nanoTime();
    }

    @Override
    public void sleep(long milliseconds) {
        throw new UnsupportedOperationException("this clock stands still");
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("this clock stands still");
    }
}
