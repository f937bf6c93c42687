import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * The group coordinator's own assignors, asked case by case. A case has the "assignor", the number of partitions of
 * "topics" by id, and "members" in the order in which the assignor is to see them:
 * {"id", "instance" or null, "topics": [id..], "assigned": {id: [partition..]}}.
 */
final class GroupAssignors {
    private GroupAssignors() {}

    static ObjectNode assign(JsonNode command) {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ArrayNode assignments = answer.putArray("assignments");
        for (JsonNode one : command.get("cases")) {
            assignments.add(assignOne(one));
        }
        return answer;
    }

    private static ObjectNode assignOne(JsonNode one) {
        Map<Uuid, Integer> counts = new HashMap<>();
        one.get("topics").properties().forEach(topic ->
            counts.put(Uuid.fromString(topic.getKey()), topic.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> wishes = new HashSet<>();
        for (JsonNode member : one.get("members")) {
            Set<Uuid> topics = new LinkedHashSet<>();
            member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            wishes.add(topics);
            Map<Uuid, Set<Integer>> assigned = new LinkedHashMap<>();
            member.get("assigned").properties().forEach(topic -> {
                Uuid id = Uuid.fromString(topic.getKey());
                Set<Integer> partitions = new TreeSet<>();
                topic.getValue().forEach(partition -> partitions.add(partition.asInt()));
                assigned.put(id, partitions);
                partitions.forEach(partition ->
                    owners.computeIfAbsent(id, key -> new HashMap<>()).put(partition, member.get("id").asText()));
            });
            members.put(member.get("id").asText(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                Optional.ofNullable(member.get("instance").textValue()),
                topics,
                new Assignment(assigned)));
        }
        SubscriptionType type = wishes.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            one.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        GroupAssignment assignment = assignor.assign(new GroupSpecImpl(members, type, owners), describer(counts));
        ObjectNode answer = Oracle.JSON.createObjectNode();
        for (Iterator<String> ids = members.keySet().iterator(); ids.hasNext();) {
            String id = ids.next();
            ObjectNode topics = answer.putObject(id);
            if (assignment.members().containsKey(id)) {
                assignment.members().get(id).partitions().forEach((topic, partitions) -> {
                    ArrayNode numbers = topics.putArray(topic.toString());
                    new TreeSet<>(partitions).forEach(numbers::add);
                });
            }
        }
        return answer;
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }
}
