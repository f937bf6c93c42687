import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import kafka.tools.StorageTool;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * Apache Kafka's own code behind a pipe: one JSON command a line on stdin, one JSON answer a line on stdout.
 *
 * <pre>
 * {"command": "read", "file": F}                   what Kafka's reader sees in a .log file
 * {"command": "write", "file": F, "batches": [..]} batches by Kafka's builder, as BatchWriter describes
 * {"command": "control", "key": HEX, "value": HEX} what Kafka makes of a control record
 * {"command": "dump", "arguments": [..]}           DumpLogSegments, with what it printed
 * {"command": "format", "arguments": [..]}         StorageTool, which makes a log directory
 * {"command": "configs"}                           the declarations of all configs
 * {"command": "judge", "cases": [..]}              whether Kafka takes config values, as ConfigTables describes
 * {"command": "compact", "jobs": [..]}             Kafka's cleaner on partition folders, as LogCompactor describes
 * {"command": "offset_map", "puts": [..], ..}      Kafka's offset map and its bytes, as OffsetMapTable describes
 * {"command": "assign", "cases": [..]}             the group coordinator's assignors, as GroupAssignors describes
 * {"command": "tool", "class": NAME, ..}            a command-line tool of Kafka, as CommandLineTools describes
 * {"command": "topics", "bootstrap": HOST:PORT}    the topics of a broker; and so on, as BrokerClient describes:
 *                                                  "create", "produce", "consume", "offsets", "delete_records",
 *                                                  "producers"
 * </pre>
 *
 * A command that fails answers {"failure": ...} and the next one is served. The end of stdin ends the process.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Exit.setExitProcedure((status, message) -> {
            throw CommandLineTools.exited(status, message);
        });
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer;
            try {
                answer = serve(JSON.readTree(line));
            } catch (Exception | Error failure) {
                answer = JSON.createObjectNode().put("failure", failure.toString());
            }
            answers.write(JSON.writeValueAsBytes(answer));
            answers.write('\n');
            answers.flush();
        }
    }

    private static ObjectNode serve(JsonNode command) throws Exception {
        String name = command.path("command").asText();
        switch (name) {
            case "read":
                return TruthReader.read(new File(command.get("file").asText()));
            case "write":
                return BatchWriter.write(new File(command.get("file").asText()), command.get("batches"));
            case "control":
                return ControlRecords.describe(command);
            case "dump":
                return printed(command.get("arguments"), DumpLogSegments::main);
            case "format":
                return printed(command.get("arguments"), words -> {
                    int status = StorageTool.execute(words, System.out);
                    if (status != 0) {
                        throw new IllegalStateException("StorageTool ended with code " + status);
                    }
                });
            case "configs":
                return ConfigTables.declarations();
            case "judge":
                return ConfigTables.judge(command.get("cases"));
            case "compact":
                return LogCompactor.compact(command);
            case "offset_map":
                return OffsetMapTable.fill(command);
            case "assign":
                return GroupAssignors.assign(command);
            case "authorize":
                return AccessControl.decide(command);
            case "tool":
                return CommandLineTools.run(command);
            case "topics":
                return BrokerClient.topics(command);
            case "create":
                return BrokerClient.createTopic(command);
            case "produce":
                return BrokerClient.produce(command);
            case "consume":
                return BrokerClient.consume(command);
            case "offsets":
                return BrokerClient.offsets(command);
            case "delete_records":
                return BrokerClient.deleteRecords(command);
            case "producers":
                return BrokerClient.producers(command);
            default:
                throw new IllegalArgumentException("no such command: " + name);
        }
    }

    interface Tool {
        void run(String[] arguments) throws Exception;
    }

    static ObjectNode printed(JsonNode arguments, Tool tool) throws Exception {
        String[] words = JSON.convertValue(arguments, String[].class);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complaints = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(printed, false, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complaints, false, StandardCharsets.UTF_8));
        try {
            tool.run(words);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(out);
            System.setErr(err);
        }
        return JSON.createObjectNode()
            .put("stdout", printed.toString(StandardCharsets.UTF_8))
            .put("stderr", complaints.toString(StandardCharsets.UTF_8));
    }
}
