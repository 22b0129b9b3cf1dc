import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * RocketMQ's own client as a witness: one process that sends, reads and consumes as it is told.
 *
 * <p>A command is a line of fields separated by tabs; the answer is any number of such lines and
 * then "." or, after a failure, "!" and its words. Text that a user chose travels as "=" and
 * base64, nothing at all as "-". It is written for the clients of 4.9 and of 5.
 */
public class Witness {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, DefaultMQPullConsumer> PULLERS = new HashMap<>();
    private static final Map<String, DefaultMQPushConsumer> PUSHERS = new HashMap<>();
    private static final Map<String, List<MessageExt>> PUSHED = new HashMap<>();
    private static String namespace = "";
    private static PrintStream out;

    public static void main(String[] args) throws Exception {
        out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err); // what the client prints by itself is no answer
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                obey(line.split("\t", -1));
                out.println(".");
            } catch (Throwable problem) {
                problem.printStackTrace();
                out.println("!\t" + pack(problem.toString()));
            }
            out.flush();
        }
        System.exit(0); // the client's threads would go on
    }

    private static void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "namespace": namespace = words[1]; break;
            case "send": send(words); break;
            case "batch": batch(words); break;
            case "pull": pull(words); break;
            case "bounds": bounds(words); break;
            case "search": say(puller().searchOffset(queue(words, 1), Long.parseLong(words[4]))); break;
            case "view": show(puller().viewMessage(words[1], words[2])); break;
            case "queues": queues(words[1]); break;
            case "push": push(words); break;
            case "pushed": pushed(words[1]); break;
            case "stop": PUSHERS.remove(words[1]).shutdown(); break;
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    // --- sending: topic, broker, queue or key, compression, message(s) -----------------------

    private static void send(String[] words) throws Exception {
        DefaultMQProducer producer = producer(words[4]);
        Message message = message(words[1], words[5]);
        SendResult result;
        if (words[2].equals("by-key")) {
            result = producer.send(message, new SelectMessageQueueByHash(), unpack(words[3]));
        } else if (words[2].equals("-")) {
            result = producer.send(message, 20_000);
        } else {
            result = producer.send(message, queue(words, 1), 20_000);
        }
        tell(result);
    }

    private static void batch(String[] words) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 5; i < words.length; i++) {
            messages.add(message(words[1], words[i]));
        }
        tell(producer(words[4]).send(messages, queue(words, 1)));
    }

    private static void tell(SendResult result) {
        say(result.getSendStatus(), result.getMessageQueue().getBrokerName(),
            result.getMessageQueue().getQueueId(), result.getQueueOffset(),
            result.getMsgId(), result.getOffsetMsgId());
    }

    private static Message message(String topic, String token) {
        String[] f = token.split(",", -1);
        Message message = new Message(topic, bytes(f[0]));
        if (!f[1].equals("-")) message.setTags(unpack(f[1]));
        if (!f[2].equals("-")) message.setKeys(unpack(f[2]));
        message.setFlag(Integer.parseInt(f[3]));
        if (!f[4].equals("0")) message.setDelayTimeLevel(Integer.parseInt(f[4]));
        // The setter is of 5; the property is what it sets.
        if (!f[5].equals("-")) org.apache.rocketmq.common.message.MessageAccessor.putProperty(
            message, "TIMER_DELIVER_MS", f[5]);
        for (int i = 6; i + 1 < f.length; i += 2) {
            message.putUserProperty(unpack(f[i]), unpack(f[i + 1]));
        }
        return message;
    }

    // --- reading: topic, broker, queue, start, end, tags or sql, expression -------------------

    private static void pull(String[] words) throws Exception {
        MessageQueue queue = queue(words, 1);
        long offset = Long.parseLong(words[4]);
        long end = Long.parseLong(words[5]);
        String expression = unpack(words[7]);
        if (words[6].equals("sql")) {
            // Java filters by SQL only on brokers whose version a heartbeat has told.
            puller().getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                .sendHeartbeatToAllBrokerWithLock();
        }
        while (offset < end) {
            PullResult result = words[6].equals("sql")
                ? puller().pull(queue, MessageSelector.bySql(expression), offset, 32)
                : puller().pull(queue, expression, offset, 32);
            if (result.getMsgFoundList() != null) {
                for (MessageExt message : result.getMsgFoundList()) {
                    if (message.getQueueOffset() < end) show(message);
                }
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(result + " at " + offset + " of " + queue);
            }
            offset = result.getNextBeginOffset();
        }
    }

    private static void show(MessageExt m) {
        StringJoiner properties = new StringJoiner(",");
        for (Map.Entry<String, String> p : new TreeMap<>(m.getProperties()).entrySet()) {
            properties.add(pack(p.getKey())).add(pack(p.getValue()));
        }
        say(m.getQueueOffset(), m.getTopic(), m.getBrokerName(), m.getQueueId(),
            pack(m.getMsgId()), pack(m.getTags()), pack(m.getKeys()), packed(m.getBody()),
            m.getFlag(), m.getSysFlag(), m.getBornTimestamp(), m.getStoreTimestamp(),
            host(m.getBornHost()), host(m.getStoreHost()), m.getReconsumeTimes(), properties);
    }

    private static String host(SocketAddress place) {
        InetSocketAddress address = (InetSocketAddress) place;
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }

    private static void bounds(String[] words) throws Exception {
        MessageQueue queue = queue(words, 1);
        say(puller().minOffset(queue), puller().maxOffset(queue));
    }

    private static void queues(String topic) throws Exception {
        for (MessageQueue q : new TreeSet<>(puller().fetchSubscribeMessageQueues(topic))) {
            say(q.getTopic(), q.getBrokerName(), q.getQueueId());
        }
    }

    // --- consuming: group, topic, "take" or "refuse" ------------------------------------------

    private static void push(String[] words) throws Exception {
        List<MessageExt> seen = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = namespace.isEmpty()
            ? new DefaultMQPushConsumer(words[1], hook(),
                new org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely())
            : new DefaultMQPushConsumer(namespace, words[1], hook());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(words[2], "*");
        boolean refuse = words[3].equals("refuse");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.addAll(messages);
            context.setDelayLevelWhenNextConsume(1);
            boolean first = messages.get(0).getReconsumeTimes() == 0;
            return refuse && first
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        PUSHERS.put(words[1], consumer);
        PUSHED.put(words[1], seen);
        say(consumer.buildMQClientId(), consumer.getClientIP());
    }

    private static void pushed(String group) {
        List<MessageExt> seen = PUSHED.get(group);
        synchronized (seen) {
            seen.forEach(Witness::show);
        }
    }

    // --- clients ------------------------------------------------------------------------------

    private static DefaultMQProducer producer(String compression) throws Exception {
        String name = "witness_" + namespace + "_" + compression;
        DefaultMQProducer producer = PRODUCERS.get(name);
        if (producer == null) {
            producer = namespace.isEmpty()
                ? new DefaultMQProducer(name, hook())
                : new DefaultMQProducer(namespace, name, hook());
            producer.setSendMsgTimeout(20_000);
            producer.setRetryTimesWhenSendFailed(0);
            if (compression.equals("none")) {
                producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
            } else if (!compression.equals("default")) {
                choose(producer, compression);
            }
            producer.start();
            PRODUCERS.put(name, producer);
        }
        return producer;
    }

    /** setCompressType is of 5 only. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void choose(DefaultMQProducer producer, String compression) throws Exception {
        Class type = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
        Object kind = Enum.valueOf(type, compression.toUpperCase());
        producer.getClass().getMethod("setCompressType", type).invoke(producer, kind);
    }

    private static DefaultMQPullConsumer puller() throws Exception {
        DefaultMQPullConsumer puller = PULLERS.get(namespace);
        if (puller == null) {
            puller = namespace.isEmpty()
                ? new DefaultMQPullConsumer("witness", hook())
                : new DefaultMQPullConsumer(namespace, "witness", hook());
            puller.start();
            PULLERS.put(namespace, puller);
        }
        return puller;
    }

    private static RPCHook hook() {
        String key = System.getProperty("witness.accessKey");
        String secret = System.getProperty("witness.secretKey");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, secret));
    }

    // --- words --------------------------------------------------------------------------------

    private static MessageQueue queue(String[] words, int at) {
        return new MessageQueue(words[at], words[at + 1], Integer.parseInt(words[at + 2]));
    }

    private static void say(Object... fields) {
        StringJoiner line = new StringJoiner("\t");
        for (Object field : fields) line.add(String.valueOf(field));
        out.println(line);
    }

    private static String pack(String text) {
        return text == null ? "-" : packed(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String packed(byte[] bytes) {
        return bytes == null ? "-" : "=" + Base64.getEncoder().encodeToString(bytes);
    }

    private static byte[] bytes(String word) {
        return Base64.getDecoder().decode(word.substring(1));
    }

    private static String unpack(String word) {
        return new String(bytes(word), StandardCharsets.UTF_8);
    }
}
