import java.io.*;
import java.nio.file.Files;
import java.util.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.*;

/** Reads one command a line, does it with Kafka's own producer state, and answers with one line after "= ". */
public class ProducerStateProbe {
    static final TopicPartition PARTITION = new TopicPartition("topic", 0);
    static ProducerStateManager state;

    public static void main(String[] arguments) throws Exception {
        File directory = Files.createTempDirectory("probe").toFile();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.append("= ").append(answer(directory, new Scanner(line))).append('\n');
        }
        System.out.print(answers);
        directory.delete();
    }

    static String answer(File directory, Scanner in) throws Exception {
        try {
            switch (in.next()) {
                case "new": return renewed(directory, in.nextInt());
                case "data": return data(in);
                case "marker": return marker(in);
                case "replicated": state.onHighWatermarkUpdated(in.nextLong()); return "done";
                case "expire": state.removeExpiredProducers(in.nextLong()); return "done";
                case "store":
                    ProducerStateManager.writeSnapshot(new File(in.next()), state.activeProducers(), true);
                    return "done";
                case "load":
                    renewed(directory, in.nextInt());
                    ProducerStateManager.readSnapshot(new File(in.next())).forEach(state::loadProducerEntry);
                    return "done";
                case "views": return views();
                default: return "?";
            }
        } catch (org.apache.kafka.common.errors.ApiException refused) {
            return refused.getClass().getSimpleName();
        }
    }

    static String renewed(File directory, int expirationMs) throws IOException {
        ProducerStateManagerConfig config = new ProducerStateManagerConfig(expirationMs, false);
        state = new ProducerStateManager(PARTITION, directory, 900_000, config, Time.SYSTEM);
        return "done";
    }

    /** Producer id, epoch, first and last sequence, first and last offset, timestamp, transactional, sequenced. */
    static String data(Scanner in) {
        long producerId = in.nextLong();
        short epoch = in.nextShort();
        int first = in.nextInt(), last = in.nextInt();
        long base = in.nextLong(), end = in.nextLong(), timestamp = in.nextLong();
        boolean transactional = in.nextInt() == 1, sequenced = in.nextInt() == 1;
        ProducerStateEntry known = state.activeProducers().get(producerId);
        if (sequenced && known != null && known.producerEpoch() == epoch) {
            for (BatchMetadata kept : known.batchMetadata()) {
                if (kept.firstSeq() == first && kept.lastSeq() == last)
                    return "again " + kept.firstOffset() + " " + kept.lastOffset() + " " + kept.timestamp();
            }
        }
        ProducerAppendInfo append =
            state.prepareUpdate(producerId, sequenced ? AppendOrigin.CLIENT : AppendOrigin.COORDINATOR);
        append.appendDataBatch(epoch, first, last, timestamp, new LogOffsetMetadata(base), end, transactional);
        state.update(append);
        return "done";
    }

    /** Producer id, epoch, commit, epoch of the coordinator, offset, timestamp, version of transactions. */
    static String marker(Scanner in) {
        ProducerAppendInfo append = state.prepareUpdate(in.nextLong(), AppendOrigin.COORDINATOR);
        short epoch = in.nextShort();
        ControlRecordType type = in.nextInt() == 1 ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        EndTransactionMarker marker = new EndTransactionMarker(type, in.nextInt());
        Optional<CompletedTxn> ended =
            append.appendEndTxnMarker(marker, epoch, in.nextLong(), in.nextLong(), in.nextShort());
        state.update(append);
        if (ended.isEmpty()) return "done";
        CompletedTxn transaction = ended.get();
        long stable = state.lastStableOffset(transaction);
        state.completeTxn(transaction);
        return "ended " + transaction.producerId() + " " + transaction.firstOffset() + " " + transaction.lastOffset()
            + " " + stable + " " + (transaction.isAborted() ? 1 : 0);
    }

    static String views() {
        StringBuilder shown = new StringBuilder();
        shown.append(state.firstUnstableOffset().map(at -> at.messageOffset).orElse(-1L));
        shown.append(' ').append(state.firstUndecidedOffset().orElse(-1L));
        for (ProducerStateEntry entry : new TreeMap<>(state.activeProducers()).values()) {
            int lastSequence = -1;
            for (BatchMetadata kept : entry.batchMetadata()) lastSequence = kept.lastSeq();
            shown.append(" | " + entry.producerId() + " " + entry.producerEpoch() + " " + lastSequence + " "
                + entry.lastDataOffset() + " " + entry.lastTimestamp() + " " + entry.coordinatorEpoch() + " "
                + entry.currentTxnFirstOffset().orElse(-1L));
        }
        return shown.toString();
    }
}
