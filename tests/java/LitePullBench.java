import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Reads a whole topic once for each line on stdin, with the consumer that Flink and most Java
 * programs use, and answers with one line of JSON. A pass has a consumer and a group of its own;
 * the clock runs from the first message to the last, so neither the virtual machine's start nor
 * connections nor shutdown count, and the compiler keeps what it learnt from earlier passes.
 *
 * Arguments: topic, number of messages, threads, batch.
 */
public class LitePullBench {
    private static final long SILENCE_MILLIS = 30_000;

    public static void main(String[] args) throws Exception {
        String topic = args[0];
        long expected = Long.parseLong(args[1]);
        int threads = Integer.parseInt(args[2]);
        int batch = Integer.parseInt(args[3]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (int pass = 0; lines.readLine() != null; pass++) {
            System.out.println(read(topic, expected, threads, batch, "bench_lite_pull_" + pass));
        }
    }

    private static String read(String topic, long expected, int threads, int batch, String group)
            throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setInstanceName(group);
        consumer.setPullThreadNums(threads);
        consumer.setPullBatchSize(batch);
        consumer.setAutoCommit(false);
        // Not by seeking: that races with the first pulls, which then come twice.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        try {
            consumer.assign(consumer.fetchMessageQueues(topic));
            return drain(consumer, expected);
        } finally {
            consumer.shutdown();
        }
    }

    private static String drain(DefaultLitePullConsumer consumer, long expected) {
        long messages = 0;
        long bytes = 0;
        long first = 0;
        long last = System.nanoTime();
        while (true) {
            // Once all have come, a last look for some that should not.
            List<MessageExt> polled = consumer.poll(messages < expected ? 1000 : 300);
            long now = System.nanoTime();
            if (polled.isEmpty()) {
                if (messages >= expected || now - last > SILENCE_MILLIS * 1_000_000) {
                    break;
                }
                continue;
            }
            if (messages == 0) {
                first = now;
            }
            for (MessageExt message : polled) {
                bytes += message.getBody().length;
            }
            messages += polled.size();
            last = now;
        }
        double seconds = (last - first) / 1e9;
        return String.format(
            "{\"messages\": %d, \"bytes\": %d, \"seconds\": %s}", messages, bytes, seconds);
    }
}
