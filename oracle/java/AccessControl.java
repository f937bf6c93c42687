import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's own authorizer, asked case by case. A case has the "acls", each a list of the resource's type, its name, the
 * type of the pattern, the principal, the host, the operation and the permission, by Kafka's numbers; the texts
 * "super_users" and "allow_everyone"; "questions": [principal, host, operation, type, name or null for any resource];
 * and "filters", in the order of an entry. The answer has "allowed", and for each filter the numbers of its entries.
 */
final class AccessControl {
    private AccessControl() {}

    static ObjectNode decide(JsonNode command) throws Exception {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ArrayNode cases = answer.putArray("cases");
        for (JsonNode one : command.get("cases")) {
            decideOne(one, cases.addObject());
        }
        return answer;
    }

    private static void decideOne(JsonNode one, ObjectNode answer) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            "node.id", "1",
            "process.roles", "broker",
            StandardAuthorizer.SUPER_USERS_CONFIG, one.get("super_users").asText(),
            StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, one.get("allow_everyone").asText()));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        Map<AclBinding, Integer> numbers = new HashMap<>();
        for (JsonNode each : one.get("acls")) {
            StandardAcl acl = new StandardAcl(
                ResourceType.fromCode((byte) each.get(0).asInt()),
                each.get(1).asText(),
                PatternType.fromCode((byte) each.get(2).asInt()),
                each.get(3).asText(),
                each.get(4).asText(),
                AclOperation.fromCode((byte) each.get(5).asInt()),
                AclPermissionType.fromCode((byte) each.get(6).asInt()));
            numbers.put(acl.toBinding(), numbers.size());
            acls.put(Uuid.randomUuid(), acl);
        }
        authorizer.loadSnapshot(acls);
        authorizer.completeInitialLoad();
        ArrayNode allowed = answer.putArray("allowed");
        for (JsonNode question : one.get("questions")) {
            allowed.add(ask(authorizer, question) == AuthorizationResult.ALLOWED);
        }
        ArrayNode selected = answer.putArray("selected");
        for (JsonNode each : one.get("filters")) {
            AclBindingFilter filter = new AclBindingFilter(
                new ResourcePatternFilter(
                    ResourceType.fromCode((byte) each.get(0).asInt()),
                    each.get(1).textValue(),
                    PatternType.fromCode((byte) each.get(2).asInt())),
                new AccessControlEntryFilter(
                    each.get(3).textValue(),
                    each.get(4).textValue(),
                    AclOperation.fromCode((byte) each.get(5).asInt()),
                    AclPermissionType.fromCode((byte) each.get(6).asInt())));
            ArrayNode found = selected.addArray();
            authorizer.acls(filter).forEach(binding -> found.add(numbers.get(binding)));
        }
        authorizer.close();
    }

    private static AuthorizationResult ask(StandardAuthorizer authorizer, JsonNode question) throws Exception {
        String[] principal = question.get(0).asText().split(":", 2);
        AuthorizableRequestContext context = new Sender(
            new KafkaPrincipal(principal[0], principal[1]), InetAddress.getByName(question.get(1).asText()));
        AclOperation operation = AclOperation.fromCode((byte) question.get(2).asInt());
        ResourceType type = ResourceType.fromCode((byte) question.get(3).asInt());
        if (question.get(4).isNull()) {
            return authorizer.authorizeByResourceType(context, operation, type);
        }
        ResourcePattern resource = new ResourcePattern(type, question.get(4).asText(), PatternType.LITERAL);
        return authorizer.authorize(context, List.of(new Action(operation, resource, 1, true, true))).get(0);
    }

    private record Sender(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "client";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
