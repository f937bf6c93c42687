import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import io.apicurio.registry.resolver.ParsedSchema;
import io.apicurio.registry.resolver.SchemaLookupResult;
import io.apicurio.registry.resolver.SchemaResolver;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * Payloads as Apicurio's serializer for Kafka writes them, one JSON line each: messages of every outermost type of a
 * descriptor set. The arguments are its name in the lines, the path of the set, and settings as NAME=VALUE. The registry
 * is asked for nothing: each schema has the id 7.
 */
public final class ApicurioProtobufPayloads {
    public static void main(String[] arguments) throws Exception {
        FileDescriptorSet set = FileDescriptorSet.parseFrom(Files.readAllBytes(Path.of(arguments[1])));
        FileDescriptor file = FileDescriptor.buildFrom(set.getFile(0), new FileDescriptor[0]);
        Map<String, Object> settings = new HashMap<>();
        for (int number = 2; number < arguments.length; number++) {
            String[] setting = arguments[number].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        try (ProtobufKafkaSerializer<DynamicMessage> serializer = new ProtobufKafkaSerializer<>(resolver())) {
            serializer.configure(settings, false);
            for (Descriptor type : file.getMessageTypes()) {
                DynamicMessage.Builder message = DynamicMessage.newBuilder(type);
                if (type.findFieldByName("id") != null) {
                    message.setField(type.findFieldByName("id"), 300L);
                }
                byte[] payload = serializer.serialize("orders", new RecordHeaders(), message.build());
                System.out.printf(
                    "{\"serializer\": \"%s\", \"message\": \"%s\", \"payload\": \"%s\"}%n",
                    arguments[0], type.getFullName(), Base64.getEncoder().encodeToString(payload));
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static <S, D> SchemaResolver<S, D> resolver() {
        ParsedSchema<Object> nothing = (ParsedSchema<Object>) Proxy.newProxyInstance(
            ApicurioProtobufPayloads.class.getClassLoader(), new Class<?>[] {ParsedSchema.class},
            (self, method, values) -> method.getReturnType() == byte[].class ? new byte[0] : null);
        return (SchemaResolver<S, D>) Proxy.newProxyInstance(
            ApicurioProtobufPayloads.class.getClassLoader(), new Class<?>[] {SchemaResolver.class},
            (self, method, values) -> method.getName().equals("resolveSchema")
                ? SchemaLookupResult.builder().contentId(7L).globalId(7L).parsedSchema(nothing).build() : null);
    }
}
