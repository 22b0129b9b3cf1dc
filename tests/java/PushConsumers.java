import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Real push consumers join a group; once they have settled, a line of JSON says who holds what:
 *
 *   {"strategy":"AVG","result":{"10.0.0.1@1":[{"brokerName":"a","queueId":0,"topic":"T"}]}}
 *
 * Then the first of them leaves, and another line says what the others hold. So twice for each
 * strategy. After each line it waits for one on stdin, so that others can look at the group.
 *
 * Arguments: number of queues in all, strategies, topics, member ids (ip@instanceName), the last
 * three as comma lists; and how group names begin, which go on with the strategy. Settled means: every queue has one holder, and nothing has changed for a
 * while. Whether that is the right answer is not decided here.
 */
public class PushConsumers {
    private static final long QUIET_MILLIS = 4_000;
    private static final BufferedReader STDIN =
        new BufferedReader(new InputStreamReader(System.in));
    private static final int API_MILLIS = 30_000;
    private static final long PATIENCE_MILLIS = 150_000;

    public static void main(String[] args) throws Exception {
        int queues = Integer.parseInt(args[0]);
        warmUp(args[2].split(",")[0]);
        for (String strategy : args[1].split(",")) {
            run(args[4] + strategy, strategy, queues, args[2].split(","), args[3].split(","));
        }
        // Threads of the client linger.
        System.exit(0);
    }

    /**
     * The first request of a cold virtual machine on a busy computer can take longer than the client
     * gives it, and a push consumer that fails to start cannot be started again. A producer can.
     */
    private static void warmUp(String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("warm_up");
        producer.setMqClientApiTimeout(API_MILLIS);
        producer.start();
        long deadline = System.currentTimeMillis() + PATIENCE_MILLIS;
        while (true) {
            try {
                producer.fetchPublishMessageQueues(topic);
                break;
            } catch (Exception e) {
                if (System.currentTimeMillis() > deadline) {
                    throw e;
                }
                Thread.sleep(500);
            }
        }
        producer.shutdown();
    }

    private static void run(
            String group, String strategy, int queues, String[] topics, String[] members)
            throws Exception {
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        try {
            for (String member : members) {
                consumers.add(start(group, strategy, topics, member));
            }
            report(settled(strategy, queues, topics, consumers));
            consumers.remove(0).shutdown();
            report(settled(strategy, queues, topics, consumers));
        } finally {
            for (DefaultMQPushConsumer consumer : consumers) {
                consumer.shutdown();
            }
        }
    }

    private static void report(String line) throws Exception {
        System.out.println(line);
        if (STDIN.readLine() == null) {
            throw new IllegalStateException("nobody listens any more");
        }
    }

    private static DefaultMQPushConsumer start(
            String group, String strategy, String[] topics, String member) throws Exception {
        int at = member.indexOf('@');
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setClientIP(member.substring(0, at));
        consumer.setInstanceName(member.substring(at + 1));
        consumer.setAllocateMessageQueueStrategy(named(strategy));
        consumer.setMqClientApiTimeout(API_MILLIS);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener(
            (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        return consumer;
    }

    private static AllocateMessageQueueStrategy named(String strategy) {
        switch (strategy) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            default:
                throw new IllegalArgumentException(strategy);
        }
    }

    private static String settled(
            String strategy, int queues, String[] topics, List<DefaultMQPushConsumer> consumers)
            throws InterruptedException {
        long deadline = System.currentTimeMillis() + PATIENCE_MILLIS;
        long since = System.currentTimeMillis();
        Map<String, TreeSet<MessageQueue>> last = held(topics, consumers);
        while (System.currentTimeMillis() < deadline) {
            Thread.sleep(200);
            Map<String, TreeSet<MessageQueue>> now = held(topics, consumers);
            if (!now.equals(last)) {
                last = now;
                since = System.currentTimeMillis();
            }
            if (shared(now, queues) && System.currentTimeMillis() - since > QUIET_MILLIS) {
                return json(strategy, now);
            }
        }
        throw new IllegalStateException(strategy + " did not settle; at last: " + last);
    }

    private static boolean shared(Map<String, TreeSet<MessageQueue>> held, int queues) {
        TreeSet<MessageQueue> all = new TreeSet<>();
        int count = 0;
        for (TreeSet<MessageQueue> some : held.values()) {
            all.addAll(some);
            count += some.size();
        }
        return count == queues && all.size() == queues;
    }

    /** What each really pulls: the keys of its process queue table, without the retry topic. */
    private static Map<String, TreeSet<MessageQueue>> held(
            String[] topics, List<DefaultMQPushConsumer> consumers) {
        Map<String, TreeSet<MessageQueue>> result = new TreeMap<>();
        for (DefaultMQPushConsumer consumer : consumers) {
            TreeSet<MessageQueue> queues = new TreeSet<>();
            for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl()
                    .getRebalanceImpl().getProcessQueueTable().keySet()) {
                if (List.of(topics).contains(queue.getTopic())) {
                    queues.add(queue);
                }
            }
            // The id that the broker knows it by, not the one we meant to give it.
            result.put(consumer.buildMQClientId(), queues);
        }
        return result;
    }

    private static String json(String strategy, Map<String, TreeSet<MessageQueue>> held) {
        List<String> members = new ArrayList<>();
        held.forEach((member, queues) -> {
            List<String> items = new ArrayList<>();
            for (MessageQueue queue : queues) {
                items.add(String.format(
                    "{\"brokerName\":\"%s\",\"queueId\":%d,\"topic\":\"%s\"}",
                    queue.getBrokerName(), queue.getQueueId(), queue.getTopic()));
            }
            members.add("\"" + member + "\":[" + String.join(",", items) + "]");
        });
        return "{\"strategy\":\"" + strategy + "\",\"result\":{" + String.join(",", members) + "}}";
    }
}
