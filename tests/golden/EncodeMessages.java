// Encodes messages with Apache Kafka's own classes: the oracle of message_vectors.jsonl.
//
// Standard input: a line for each message, {"class": ..., "version": ..., "data": {...}}, the data in the form of Kafka's
// JSON converters. Standard output: a line for each, the encoded bytes in hexadecimal.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;

public class EncodeMessages {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = mapper.readTree(line);
            short version = (short) request.get("version").asInt();
            Class<?> converter = Class.forName(request.get("class").asText() + "JsonConverter");
            ApiMessage message = (ApiMessage) converter.getMethod("read", JsonNode.class, short.class)
                .invoke(null, request.get("data"), version);
            byte[] encoded = MessageUtil.toByteBufferAccessor(message, version).buffer().array();
            System.out.println(HexFormat.of().formatHex(encoded));
        }
    }
}
