import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends so many messages for each line on stdin, from so many threads in synchronous batches, and
 * answers with one line of JSON. The connection is made before the first.
 *
 * Arguments: topic, messages, threads, messages in a batch, bytes of a body.
 */
public class ProduceBench {
    public static void main(String[] args) throws Exception {
        String topic = args[0];
        int messages = Integer.parseInt(args[1]);
        int threads = Integer.parseInt(args[2]);
        int batch = Integer.parseInt(args[3]);
        byte[] body = new byte[Integer.parseInt(args[4])];
        new Random(1).nextBytes(body);
        DefaultMQProducer producer = new DefaultMQProducer("bench_producer");
        producer.setSendMsgTimeout(30_000);
        producer.start();
        producer.fetchPublishMessageQueues(topic);
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            long begin = System.nanoTime();
            List<Future<Integer>> parts = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                int share = messages / threads + (thread < messages % threads ? 1 : 0);
                parts.add(pool.submit(part(producer, topic, share, batch, body)));
            }
            int sent = 0;
            for (Future<Integer> part : parts) {
                sent += part.get();
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            System.out.println(
                String.format("{\"messages\": %d, \"seconds\": %s}", sent, seconds));
        }
        pool.shutdown();
        producer.shutdown();
    }

    private static Callable<Integer> part(
            DefaultMQProducer producer, String topic, int messages, int batch, byte[] body) {
        return () -> {
            int sent = 0;
            while (sent < messages) {
                int count = Math.min(batch, messages - sent);
                List<Message> together = new ArrayList<>(count);
                for (int number = 0; number < count; number++) {
                    together.add(new Message(topic, body));
                }
                SendResult result = producer.send(together);
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException(result.toString());
                }
                sent += count;
            }
            return sent;
        };
    }
}
