import com.amazonaws.services.schemaregistry.common.configs.GlueSchemaRegistryConfiguration;
import com.amazonaws.services.schemaregistry.serializers.SerializationDataEncoder;
import com.amazonaws.services.schemaregistry.serializers.protobuf.ProtobufSerializer;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * Payloads as AWS Glue's serializer for Kafka writes them, one JSON line each: messages of every type of a descriptor set,
 * whose path is the only argument. The UUID of the schema version is given; all else is AWS's own.
 */
public final class GlueProtobufPayloads {
    private static final UUID VERSION = UUID.fromString("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63");

    public static void main(String[] arguments) throws Exception {
        FileDescriptorSet set = FileDescriptorSet.parseFrom(Files.readAllBytes(Path.of(arguments[0])));
        FileDescriptor file = FileDescriptor.buildFrom(set.getFile(0), new FileDescriptor[0]);
        for (String compression : List.of("NONE", "ZLIB")) {
            GlueSchemaRegistryConfiguration configuration =
                new GlueSchemaRegistryConfiguration(Map.of("region", "eu-west-1", "compression", compression));
            for (Descriptor type : file.getMessageTypes()) {
                print(configuration, compression, type);
            }
        }
    }

    private static void print(GlueSchemaRegistryConfiguration configuration, String compression, Descriptor type) {
        DynamicMessage.Builder message = DynamicMessage.newBuilder(type);
        if (type.findFieldByName("id") != null) {
            message.setField(type.findFieldByName("id"), 300L);
        }
        byte[] data = ProtobufSerializer.builder().configs(configuration).build().serialize(message.build());
        byte[] payload = new SerializationDataEncoder(configuration).write(data, VERSION);
        System.out.printf(
            "{\"serializer\": \"glue\", \"compression\": \"%s\", \"version\": \"%s\", \"message\": \"%s\", \"payload\": \"%s\"}%n",
            compression, VERSION, type.getFullName(), Base64.getEncoder().encodeToString(payload));
        for (Descriptor nested : type.getNestedTypes()) {
            if (!nested.getOptions().getMapEntry()) {
                print(configuration, compression, nested);
            }
        }
    }
}
