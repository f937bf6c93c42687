import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools, as their scripts start them, without a JVM for each:
 *
 * <pre>
 * {"command": "tool", "class": NAME, "arguments": [..], "stdin": TEXT, "properties": {NAME: VALUE}}
 * </pre>
 *
 * answers {"status": what it would have exited with, "stdout": .., "stderr": ..}. What a tool does when its JVM ends,
 * such as sending what it has not sent yet, is done when its main method is through.
 */
final class CommandLineTools {
    /** What the tool called exit with first: some catch what they throw themselves, and exit again. */
    private static Integer status;

    static IllegalStateException exited(int code, String message) {
        status = status == null ? code : status;
        return new IllegalStateException("exit " + code + ": " + message);
    }

    static ObjectNode run(JsonNode command) throws Exception {
        Class<?> tool = Class.forName(command.get("class").asText());
        command.path("properties").properties().forEach(
            entry -> System.setProperty(entry.getKey(), entry.getValue().asText()));
        InputStream stdin = System.in;
        System.setIn(new ByteArrayInputStream(command.path("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        status = null;
        try {
            ObjectNode answer = Oracle.printed(command.get("arguments"), words -> {
                try {
                    tool.getMethod("main", String[].class).invoke(null, (Object) words);
                } catch (InvocationTargetException failure) {
                    if (status == null) {
                        failure.getCause().printStackTrace();
                        status = 1;
                    }
                }
                hooks.forEach(Runnable::run);
            });
            return answer.put("status", status == null ? 0 : status);
        } finally {
            Exit.resetShutdownHookAdder();
            System.setIn(stdin);
        }
    }
}
