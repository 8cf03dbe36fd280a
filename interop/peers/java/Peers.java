// Drives other lock libraries of Java for `cargo xtask bench peers`, by the lines that
// `interop/peers/go/main.go` describes. System.nanoTime is CLOCK_MONOTONIC on Linux.

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbc.JdbcLockProvider;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Peers {
    /** Between two tries of a row that is taken. ShedLock itself does not wait. */
    private static final long ROW_PAUSE_MS = 10;

    private interface Release {
        void run() throws Exception;
    }

    /** Waits until the lock is held, and returns what releases it. */
    private interface Contender {
        Release lock(String name) throws Exception;
    }

    private record Turn(int contender, long asked, long granted, long releasing, long released) {}

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        Contender system = open(arguments[0], count, arguments[2]);
        ExecutorService threads = Executors.newFixedThreadPool(count);
        List<Turn> turns = new ArrayList<>();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready " + version(arguments[0]));
        for (String line; (line = requests.readLine()) != null;) {
            if (line.equals("report")) {
                report(turns);
                continue;
            }
            String[] words = line.split(" ");
            long start = Long.parseLong(words[2]);
            long end = Long.parseLong(words[3]);
            TimeUnit.NANOSECONDS.sleep(start - System.nanoTime());
            List<Future<List<Turn>>> running = new ArrayList<>();
            boolean own = words.length == 5;
            int many = own ? Integer.parseInt(words[4]) : count;
            for (int number = 0; number < many; number++) {
                int contender = number;
                String name = own ? words[1] + "/" + number : words[1];
                running.add(threads.submit(() -> contend(contender, system, name, end)));
            }
            turns.clear();
            for (Future<List<Turn>> contender : running) {
                turns.addAll(contender.get());
            }
            System.out.println("ran");
        }
        Runtime.getRuntime().halt(0);
    }

    private static Contender open(String system, int count, String server) {
        switch (system) {
            case "redisson":
                return redisson(server, client -> client::getLock);
            case "redisson-fenced":
                return redisson(server, client -> client::getFencedLock);
            case "curator":
                return curator(server);
            case "shedlock":
                return shedlock(server, count);
            default:
                throw new IllegalArgumentException("no such system: " + system);
        }
    }

    private static String version(String system) {
        Class<?> of = switch (system) {
            case "curator" -> InterProcessMutex.class;
            case "shedlock" -> JdbcLockProvider.class;
            default -> Redisson.class;
        };
        String version = of.getPackage().getImplementationVersion();
        if (version != null) {
            return version;
        }
        // Not all say it in their manifest; the file has it in its name.
        String jar = of.getProtectionDomain().getCodeSource().getLocation().getPath();
        return jar.replaceAll("^.*-|\\.jar$", "");
    }

    /** With its own defaults. */
    private static Contender redisson(
            String server, Function<RedissonClient, Function<String, RLock>> kind) {
        Config config = new Config();
        config.useSingleServer().setAddress(server);
        Function<String, RLock> locks = kind.apply(Redisson.create(config));
        return name -> {
            RLock lock = locks.apply(name);
            lock.lock();
            return lock::unlock;
        };
    }

    /**
     * Curator's own example of a client. Each thread has a mutex of its own: those that share one are
     * all woken by each message to one of them.
     */
    private static Contender curator(String server) {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(server, new ExponentialBackoffRetry(1000, 3));
        client.start();
        ThreadLocal<Map<String, InterProcessMutex>> locks = ThreadLocal.withInitial(HashMap::new);
        return name -> {
            InterProcessMutex lock = locks.get().computeIfAbsent(
                name, path -> new InterProcessMutex(client, "/peers/" + path));
            lock.acquire();
            return lock::release;
        };
    }

    /** Its provider for JDBC, and a connection for each contender. */
    private static Contender shedlock(String server, int count) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(server);
        config.setMaximumPoolSize(count);
        LockProvider provider = new JdbcLockProvider(new HikariDataSource(config));
        Duration most = Duration.ofSeconds(30);
        return name -> {
            while (true) {
                Optional<SimpleLock> lock = provider.lock(
                    new LockConfiguration(Instant.now(), name, most, Duration.ZERO));
                if (lock.isPresent()) {
                    return lock.get()::unlock;
                }
                Thread.sleep(ROW_PAUSE_MS);
            }
        };
    }

    private static List<Turn> contend(int number, Contender system, String name, long end)
            throws Exception {
        List<Turn> turns = new ArrayList<>();
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            Release release = system.lock(name);
            long granted = System.nanoTime();
            long releasing = System.nanoTime();
            release.run();
            turns.add(new Turn(number, asked, granted, releasing, System.nanoTime()));
        }
        return turns;
    }

    private static void report(List<Turn> turns) {
        StringBuilder output = new StringBuilder();
        for (Turn turn : turns) {
            output.append(turn.contender).append(' ').append(turn.asked).append(' ');
            output.append(turn.granted).append(' ').append(turn.releasing).append(' ');
            output.append(turn.released).append('\n');
        }
        System.out.println(output + "done");
    }
}
