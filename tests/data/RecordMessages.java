import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageVersion;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/**
 * Writes tests/data/java_messages.jsonl: records that RocketMQ's own classes encode, and what a Java
 * consumer reads out of each. One record a line, with its messages (several for an inner batch).
 *
 * <p>java -cp 'rocketmq-5.5.0-jars/*' tests/data/RecordMessages.java tests/data/java_messages.jsonl
 */
public class RecordMessages {
    static final Random DICE = new Random(20240611);
    static final String[] WORDS = {
        "order-1", "中文", "a b", "TagA", "é", "\ud83d\ude80", "x\u0001y", "\u0001", "0", "\"quoted\\"
    };
    static final String[] NAMES = {
        "KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "名", "user-property", "__SHARDINGKEY", "k"
    };

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(args[0], StandardCharsets.UTF_8);
        for (int number = 0; number < 48; number++) {
            MessageExt message = random(number);
            if (number % 6 == 5) {
                List<Message> items = new ArrayList<>();
                for (int item = DICE.nextInt(4); item >= 0; item--) {
                    Message part = new Message("any", bytes(DICE.nextInt(60)));
                    part.setFlag(DICE.nextInt());
                    MessageAccessor.setProperties(part, properties());
                    items.add(part);
                }
                message.setBody(MessageDecoder.encodeMessages(items));
                message.setSysFlag(message.getSysFlag()
                    | MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG);
            }
            byte[] record = MessageDecoder.encode(message, true);
            out.println(line(number % 8 == 7 ? second(record, message) : record));
        }
        // What no Java producer writes, but a Java consumer reads: the properties' bytes replaced.
        List<byte[]> strange = new ArrayList<>();
        strange.add("a\u0001b\u0002c\u0001\u0002\u0001x\u0002d\u0001e\u0001f\u0002g".getBytes(StandardCharsets.UTF_8));
        strange.add("a\u0001b\u0002a\u0001c".getBytes(StandardCharsets.UTF_8));
        strange.add("\u0002\u0002KEYS\u0001x\u0002\u0002KEYS\u0001y\u0002\u0001".getBytes(StandardCharsets.UTF_8));
        for (int number = 0; number < 60; number++) {
            byte[] text = new byte[1 + DICE.nextInt(24)];
            int[] some = {1, 2, 'a', 'b', 0xC0, 0xC3, 0xE0, 0xE4, 0xED, 0xF0, 0xF4, 0xF5, 0x80, 0x90, 0xA0, 0xAD, 0xB8, 0xFF};
            for (int i = 0; i < text.length; i++) {
                text[i] = (byte) some[DICE.nextInt(some.length)];
            }
            text[0] = 'n';
            if (text.length > 1) {
                text[1] = 1;
            }
            strange.add(text);
        }
        for (byte[] text : strange) {
            MessageExt message = random(0);
            message.setSysFlag(0);
            message.setBornHost(address(false));
            message.setStoreHost(address(false));
            MessageAccessor.setProperties(message, new TreeMap<>());
            byte[] record = MessageDecoder.encode(message, false);
            ByteBuffer longer = ByteBuffer.allocate(record.length + text.length);
            longer.put(record, 0, record.length - 2).putShort((short) text.length).put(text);
            longer.putInt(0, longer.capacity());
            out.println(line(longer.array()));
        }
    }

    /** As brokers store a topic of more than 127 bytes; MessageDecoder.encode knows only V1. */
    static byte[] second(byte[] record, MessageExt message) {
        byte[] topic = "a-long-topic-".repeat(10 + DICE.nextInt(10)).getBytes(StandardCharsets.UTF_8);
        int rest = 2 + MessageDecoder.messageProperties2String(message.getProperties())
            .getBytes(StandardCharsets.UTF_8).length;
        int before = record.length - rest - message.getTopic().length() - 1;
        ByteBuffer longer = ByteBuffer.allocate(before + 2 + topic.length + rest);
        longer.put(record, 0, before).putShort((short) topic.length).put(topic);
        longer.put(record, record.length - rest, rest);
        longer.putInt(0, longer.capacity()).putInt(4, MessageVersion.MESSAGE_VERSION_V2.getMagicCode());
        return longer.array();
    }

    static MessageExt random(int number) throws Exception {
        MessageExt message = new MessageExt();
        int flag = DICE.nextBoolean() ? 0 : MessageSysFlag.TRANSACTION_COMMIT_TYPE;
        boolean born6 = DICE.nextInt(3) == 0;
        boolean stored6 = DICE.nextInt(3) == 0;
        flag |= born6 ? MessageSysFlag.BORNHOST_V6_FLAG : 0;
        flag |= stored6 ? MessageSysFlag.STOREHOSTADDRESS_V6_FLAG : 0;
        int kind = DICE.nextInt(6);
        if (kind < 4) {
            flag |= MessageSysFlag.COMPRESSED_FLAG;
            flag |= kind == 0 ? 0 : CompressionType.findByValue(kind).getCompressionFlag();
        }
        message.setTopic("topic-" + number);
        message.setQueueId(DICE.nextInt(16));
        message.setFlag(DICE.nextInt());
        message.setQueueOffset(DICE.nextInt(1 << 30) * 1000L);
        message.setCommitLogOffset(DICE.nextLong() >>> 8);
        message.setSysFlag(flag);
        message.setBornTimestamp(1700000000000L + DICE.nextInt());
        message.setStoreTimestamp(1700000000000L + DICE.nextInt());
        message.setBornHost(address(born6));
        message.setStoreHost(address(stored6));
        message.setReconsumeTimes(DICE.nextInt(17));
        message.setPreparedTransactionOffset(DICE.nextInt(1000));
        byte[] body = bytes(number % 9 == 4 ? 3000 : DICE.nextInt(80));
        if (DICE.nextBoolean()) {
            Arrays.fill(body, (byte) 'a');
        }
        message.setBody(body);
        MessageAccessor.setProperties(message, properties());
        return message;
    }

    static Map<String, String> properties() {
        Map<String, String> properties = new TreeMap<>();
        for (int count = DICE.nextInt(6); count > 0; count--) {
            properties.put(NAMES[DICE.nextInt(NAMES.length)], WORDS[DICE.nextInt(WORDS.length)]);
        }
        return properties;
    }

    static SocketAddress address(boolean six) throws Exception {
        return new InetSocketAddress(InetAddress.getByAddress(bytes(six ? 16 : 4)), DICE.nextInt(65536));
    }

    static byte[] bytes(int size) {
        byte[] bytes = new byte[size];
        DICE.nextBytes(bytes);
        return bytes;
    }

    /** Decodes as PullAPIWrapper.processPullResult does. */
    static String line(byte[] record) throws Exception {
        List<MessageExt> read = new ArrayList<>();
        for (MessageExt message : MessageDecoder.decodesBatch(ByteBuffer.wrap(record), true, true, true)) {
            if (MessageSysFlag.check(message.getSysFlag(), MessageSysFlag.INNER_BATCH_FLAG)
                && MessageSysFlag.check(message.getSysFlag(), MessageSysFlag.NEED_UNWRAP_FLAG)) {
                MessageDecoder.decodeMessage(message, read);
            } else {
                read.add(message);
            }
        }
        StringBuilder text = new StringBuilder("{\"record\":\"" + hex(record) + "\",\"messages\":[");
        for (MessageExt message : read) {
            text.append(text.charAt(text.length() - 1) == '[' ? "" : ",").append(json(message));
        }
        return text.append("]}").toString();
    }

    static String json(MessageExt message) {
        StringBuilder properties = new StringBuilder();
        Map<String, String> read = message.getProperties();
        for (Map.Entry<String, String> each : new TreeMap<>(read == null ? Map.of() : read).entrySet()) {
            properties.append(properties.length() == 0 ? "" : ",");
            properties.append(quoted(each.getKey())).append(":").append(quoted(each.getValue()));
        }
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        return "{\"topic\":" + quoted(message.getTopic())
            + ",\"queue_id\":" + message.getQueueId()
            + ",\"queue_offset\":" + message.getQueueOffset()
            + ",\"physical_offset\":" + message.getCommitLogOffset()
            + ",\"flag\":" + message.getFlag()
            + ",\"sys_flag\":" + message.getSysFlag()
            + ",\"born_timestamp\":" + message.getBornTimestamp()
            + ",\"born_host\":" + host(message.getBornHost())
            + ",\"store_timestamp\":" + message.getStoreTimestamp()
            + ",\"store_host\":" + host(message.getStoreHost())
            + ",\"reconsume_times\":" + message.getReconsumeTimes()
            + ",\"prepared_transaction_offset\":" + message.getPreparedTransactionOffset()
            + ",\"body\":\"" + hex(body) + "\""
            + ",\"properties\":{" + properties + "}"
            + ",\"msg_id\":" + (message.getMsgId() == null ? "null" : quoted(message.getMsgId()))
            + ",\"keys\":" + (message.getKeys() == null ? "null" : quoted(message.getKeys()))
            + ",\"tags\":" + (message.getTags() == null ? "null" : quoted(message.getTags())) + "}";
    }

    static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return "[\"" + hex(host.getAddress().getAddress()) + "\"," + host.getPort() + "]";
    }

    static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char unit : text.toCharArray()) {
            if (unit < ' ' || unit > '~' || unit == '"' || unit == '\\') {
                quoted.append(String.format("\\u%04x", (int) unit));
            } else {
                quoted.append(unit);
            }
        }
        return quoted.append('"').toString();
    }

    static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte each : bytes) {
            hex.append(String.format("%02x", each));
        }
        return hex.toString();
    }
}
