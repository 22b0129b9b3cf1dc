import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.zip.GZIPOutputStream;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Records what RocketMQ's own allocation classes answer, for tests/core/test_allocate_java.py.
 *
 *   java -cp 'JARS/*' tests/data/RecordAllocations.java tests/data/java_allocations.json.gz
 *
 * JARS holds rocketmq-client 5.5.0 with its dependencies. The cases are random but seeded: the same
 * jars write the same bytes. Queues and members are written in a shuffled order, and sorted only for
 * the strategies, as RebalanceImpl does; an answer's numbers are positions in the shuffled lists.
 */
public class RecordAllocations {
    static final long SEED = 20240917;
    static final int CASES = 320;

    // UTF-16 order and code point order differ exactly where a character beyond U+FFFF meets one of
    // U+E000 to U+FFFF, so both kinds are here, and halves of pairs, which UTF-8 cannot hold.
    static final String[] SPICES = {
        "", "", "", "", "-9", "-10", "-1", "中文", "é", "e\u0301", "\ue000", "\uff21", "\ufffd",
        "😀", "𝔸", "𐀀", "\ud800", "\udc00", " ", "%RETRY%", "|", "_", "A", "a", "\u0000", "\"\\", "0", "00"
    };
    static final String[] ROOMS = {"room1", "room2", "r-10", "r-9", "机房", "😀", "\uff21", ""};

    final Random random = new Random(SEED);
    final StringBuilder out = new StringBuilder();

    public static void main(String[] args) throws IOException {
        new RecordAllocations().write(Path.of(args[0]));
    }

    void write(Path file) throws IOException {
        out.append("{\"rocketmq\":").append(quote(MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION)));
        out.append(",\"cases\":[");
        for (int i = 0; i < CASES; i++) {
            boolean large = i % 80 == 79;
            record(randomQueues(large), randomMembers(large));
            out.append(",\n");
        }
        collision();
        out.append("]}\n");
        try (OutputStream raw = Files.newOutputStream(file); OutputStream zip = new GZIPOutputStream(raw)) {
            zip.write(out.toString().getBytes(StandardCharsets.US_ASCII));
        }
    }

    // --- inputs -------------------------------------------------------------------------------

    String spice() {
        return SPICES[random.nextInt(SPICES.length)];
    }

    String room() {
        return ROOMS[random.nextInt(ROOMS.length)];
    }

    String brokerName() {
        String name = "b" + spice() + spice();
        switch (random.nextInt(12)) {
            case 0: return name;
            case 1: return name + "@";
            case 2: return "@" + name;
            case 3: return room() + "@@" + name;
            case 4: return room() + "@" + name + "@";
            case 5: return room() + "@" + name + "@x";
            case 6: return room() + "@";
            case 7: return spice() + "broker-" + random.nextInt(20);
            default: return room() + "@" + name;
        }
    }

    List<MessageQueue> randomQueues(boolean large) {
        int topics = 1 + random.nextInt(random.nextBoolean() ? 1 : 3);
        int brokers = 1 + random.nextInt(large ? 20 : 5);
        Set<MessageQueue> queues = new LinkedHashSet<>();
        List<String> brokerNames = new ArrayList<>();
        for (int b = 0; b < brokers; b++) {
            brokerNames.add(brokerName());
        }
        for (int t = 0; t < topics; t++) {
            String topic = spice() + "T" + spice() + t;
            for (String broker : brokerNames) {
                int count = 1 + random.nextInt(large ? 20 : 7);
                boolean sparse = random.nextInt(6) == 0;
                for (int q = 0; q < count; q++) {
                    queues.add(new MessageQueue(topic, broker, sparse ? random.nextInt(2_000_000_000) : q));
                }
            }
        }
        return new ArrayList<>(queues);
    }

    List<String> randomMembers(boolean large) {
        int count = 1 + random.nextInt(large ? 300 : random.nextInt(4) == 0 ? 40 : 8);
        Set<String> members = new LinkedHashSet<>();
        while (members.size() < count) {
            String host = random.nextBoolean() ? "192.168.0." + random.nextInt(256) : spice() + "host" + spice();
            members.add(host + "@" + random.nextInt(100) + spice());
        }
        return new ArrayList<>(members);
    }

    /** Two ids whose only ring positions are the same number: the later of the two gets everything. */
    void collision() {
        Function<String, Long> position = id -> {
            byte[] md5;
            try {
                md5 = java.security.MessageDigest.getInstance("MD5").digest((id + "-0").getBytes(StandardCharsets.UTF_8));
            } catch (java.security.NoSuchAlgorithmException e) {
                throw new IllegalStateException(e);
            }
            return (md5[0] & 0xFFL) << 24 | (md5[1] & 0xFFL) << 16 | (md5[2] & 0xFFL) << 8 | (md5[3] & 0xFFL);
        };
        Map<Long, String> seen = new HashMap<>();
        for (int i = 0; ; i++) {
            String id = "c" + i;
            String other = seen.put(position.apply(id), id);
            if (other != null) {
                List<MessageQueue> queues = new ArrayList<>();
                for (int q = 0; q < 4; q++) {
                    queues.add(new MessageQueue("T", "b", q));
                }
                List<String> members = new ArrayList<>(List.of(other, id));
                begin(queues, members);
                answer(queues, members, "\"virtual_nodes\":1", c -> new AllocateMessageQueueConsistentHash(1));
                out.append("]}");
                return;
            }
        }
    }

    // --- answers ------------------------------------------------------------------------------

    void record(List<MessageQueue> queues, List<String> members) {
        Collections.shuffle(queues, random);
        Collections.shuffle(members, random);
        begin(queues, members);
        answer(queues, members, "", c -> new AllocateMessageQueueAveragely());
        out.append(',');
        answer(queues, members, "", c -> new AllocateMessageQueueAveragelyByCircle());
        out.append(',');
        int nodes = new int[] {10, 10, 10, 0, 1, 2, 3, 64}[random.nextInt(8)];
        answer(queues, members, "\"virtual_nodes\":" + nodes, c -> new AllocateMessageQueueConsistentHash(nodes));
        out.append(',');
        config(queues, members);
        out.append(',');
        Set<String> rooms = new TreeSet<>();
        for (int i = random.nextInt(5); i >= 0; i--) {
            rooms.add(room());
        }
        answer(queues, members, "\"rooms\":" + quoteAll(rooms), c -> machineRoom(rooms));
        out.append(',');
        nearby(queues, members, rooms, nodes);
        out.append("]}");
    }

    void config(List<MessageQueue> queues, List<String> members) {
        Map<String, List<MessageQueue>> config = new LinkedHashMap<>();
        for (String member : members) {
            List<MessageQueue> owned = new ArrayList<>();
            for (int i = random.nextInt(4); i > 0; i--) {
                owned.add(queues.get(random.nextInt(queues.size())));
            }
            config.put(member, owned);
        }
        StringBuilder text = new StringBuilder();
        for (List<MessageQueue> owned : config.values()) {
            text.append(text.length() == 0 ? "" : ",").append(positions(queues, owned));
        }
        answer(queues, members, "\"config\":[" + text + "]", c -> byConfig(config.get(c)));
    }

    void nearby(List<MessageQueue> queues, List<String> members, Set<String> rooms, int nodes) {
        String[] names = {"east", "west", "r-10", "r-9", "机房", "😀", "\uff21"};
        int kinds = 1 + random.nextInt(names.length);
        Map<String, String> brokerRooms = new LinkedHashMap<>();
        Map<String, String> memberRooms = new LinkedHashMap<>();
        for (MessageQueue queue : queues) {
            brokerRooms.computeIfAbsent(queue.getBrokerName(), b -> names[random.nextInt(kinds)]);
        }
        for (String member : members) {
            memberRooms.put(member, names[random.nextInt(1 + random.nextInt(kinds))]);
        }
        AllocateMachineRoomNearby.MachineRoomResolver resolver = new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
                return brokerRooms.get(queue.getBrokerName());
            }

            @Override
            public String consumerDeployIn(String member) {
                return memberRooms.get(member);
            }
        };
        AllocateMessageQueueStrategy inner;
        String params = "";
        switch (random.nextInt(4)) {
            case 0:
                inner = new AllocateMessageQueueAveragelyByCircle();
                break;
            case 1:
                inner = new AllocateMessageQueueConsistentHash(nodes);
                params = ",\"virtual_nodes\":" + nodes;
                break;
            case 2:
                inner = machineRoom(rooms);
                params = ",\"rooms\":" + quoteAll(rooms);
                break;
            default:
                inner = new AllocateMessageQueueAveragely();
        }
        params = "\"inner\":" + quote(inner.getName()) + ",\"room_of_broker\":" + quoteMap(brokerRooms)
            + ",\"room_of_member\":" + quoteMap(memberRooms) + params;
        answer(queues, members, params, c -> new AllocateMachineRoomNearby(inner, resolver));
    }

    static AllocateMessageQueueStrategy byConfig(List<MessageQueue> owned) {
        AllocateMessageQueueByConfig strategy = new AllocateMessageQueueByConfig();
        strategy.setMessageQueueList(owned);
        return strategy;
    }

    static AllocateMessageQueueStrategy machineRoom(Set<String> rooms) {
        AllocateMessageQueueByMachineRoom strategy = new AllocateMessageQueueByMachineRoom();
        strategy.setConsumeridcs(new HashSet<>(rooms));
        return strategy;
    }

    // --- the file -----------------------------------------------------------------------------

    /** Names are listed once for each case; a queue is [topic, broker name, id] by their numbers. */
    void begin(List<MessageQueue> queues, List<String> members) {
        List<String> names = new ArrayList<>();
        StringBuilder text = new StringBuilder();
        for (MessageQueue queue : queues) {
            text.append(text.length() == 0 ? "[" : ",[").append(number(names, queue.getTopic())).append(',')
                .append(number(names, queue.getBrokerName())).append(',').append(queue.getQueueId()).append(']');
        }
        out.append("{\"names\":").append(quoteAll(names)).append(",\"queues\":[").append(text)
            .append("],\"members\":").append(quoteAll(members)).append(",\"answers\":[");
    }

    static int number(List<String> names, String name) {
        if (!names.contains(name)) {
            names.add(name);
        }
        return names.indexOf(name);
    }

    void answer(List<MessageQueue> queues, List<String> members, String params,
                Function<String, AllocateMessageQueueStrategy> strategyOf) {
        List<MessageQueue> sortedQueues = new ArrayList<>(queues);
        List<String> sortedMembers = new ArrayList<>(members);
        Collections.sort(sortedQueues);
        Collections.sort(sortedMembers);
        out.append("{\"name\":").append(quote(strategyOf.apply(members.get(0)).getName()));
        out.append(",\"params\":{").append(params).append("},\"owned\":[");
        for (int i = 0; i < members.size(); i++) {
            String member = members.get(i);
            out.append(i == 0 ? "" : ",").append(
                positions(queues, strategyOf.apply(member).allocate("group", member, sortedQueues, sortedMembers)));
        }
        out.append("]}");
    }

    static String positions(List<MessageQueue> queues, List<MessageQueue> owned) {
        StringBuilder text = new StringBuilder("[");
        for (MessageQueue queue : owned) {
            text.append(text.length() == 1 ? "" : ",").append(queues.indexOf(queue));
        }
        return text.append(']').toString();
    }

    static String quoteAll(Iterable<String> values) {
        StringBuilder text = new StringBuilder("[");
        for (String value : values) {
            text.append(text.length() == 1 ? "" : ",").append(quote(value));
        }
        return text.append(']').toString();
    }

    static String quoteMap(Map<String, String> values) {
        StringBuilder text = new StringBuilder("{");
        values.forEach((key, value) ->
            text.append(text.length() == 1 ? "" : ",").append(quote(key)).append(':').append(quote(value)));
        return text.append('}').toString();
    }

    /** ASCII only, so that halves of surrogate pairs survive on the way to the reader. */
    static String quote(String value) {
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c >= ' ' && c < 127) {
                text.append(c);
            } else {
                text.append(String.format("\\u%04x", (int) c));
            }
        }
        return text.append('"').toString();
    }
}
