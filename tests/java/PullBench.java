import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a whole topic once for each line on stdin, one synchronous pull after another and one
 * queue after another, and answers with one line of JSON. The clock runs from the first answer to
 * the last; the connection is made before, by asking for offsets.
 *
 * Arguments: topic, batch.
 */
@SuppressWarnings("deprecation")
public class PullBench {
    public static void main(String[] args) throws Exception {
        String topic = args[0];
        int batch = Integer.parseInt(args[1]);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("bench_pull");
        consumer.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            System.out.println(read(consumer, topic, batch));
        }
        consumer.shutdown();
    }

    private static String read(DefaultMQPullConsumer consumer, String topic, int batch)
            throws Exception {
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic);
        long messages = 0;
        long bytes = 0;
        long first = 0;
        long last = 0;
        for (MessageQueue queue : queues) {
            long offset = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (offset < end) {
                PullResult result = consumer.pull(queue, "*", offset, batch);
                if (result.getPullStatus() != PullStatus.FOUND) {
                    throw new IllegalStateException(queue + " at " + offset + ": " + result);
                }
                if (messages == 0) {
                    first = System.nanoTime();
                }
                for (MessageExt message : result.getMsgFoundList()) {
                    bytes += message.getBody().length;
                }
                messages += result.getMsgFoundList().size();
                offset = result.getNextBeginOffset();
            }
            last = System.nanoTime();
        }
        double seconds = (last - first) / 1e9;
        return String.format(
            "{\"messages\": %d, \"bytes\": %d, \"seconds\": %s}", messages, bytes, seconds);
    }
}
