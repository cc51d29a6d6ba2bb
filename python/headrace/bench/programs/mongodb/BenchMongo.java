import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/** MongoDB's protocol over a store in memory: java BenchMongo PORT. */
public final class BenchMongo {
    /** Current drivers refuse a server that says less than 4.2 (wire version 8). */
    private static final MongoVersion VERSION = new MongoVersion() {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(5, 0, 0);
        }

        @Override
        public int getWireVersion() {
            return 13;
        }
    };

    public static void main(String[] arguments) throws InterruptedException {
        MemoryBackend backend = new MemoryBackend();
        backend.version(VERSION);
        MongoServer server = new MongoServer(backend);
        server.bind("127.0.0.1", Integer.parseInt(arguments[0]));
        Thread.currentThread().join();
    }
}
