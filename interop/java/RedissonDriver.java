// A driver of Redisson's locks, for the tests and the benchmark of the Redis engine.
//
// Arguments: `single URL`, `sentinel MASTER URL…`, `cluster URL…` or `redlock URL…`, and settings
// `watchdog=MS`, `timeout=MS`, `pool=default`. Its first line is `ready VERSION CLIENT-ID`.
//
// A request is a line `THREAD VERB …`; its answer begins with the thread's name too. Each name is a
// thread of its own, which answers its requests in turn; so different threads can wait at once.
//
//   acquire KIND NAME WAIT LEASE    held TOKEN-OR-PERMIT | busy      (WAIT -1: for ever; LEASE -1:
//                                                                     renewed by the watchdog)
//   release KIND NAME [PERMIT]      released | not-held
//   force KIND NAME                 true | false
//   token|count|mine|locked|left KIND NAME, id                       a number, true | false, an id
//   set|add|free|drain KIND NAME [N]                                 of semaphores and latches
//   down latch NAME, await latch NAME WAIT                           done | open | closed
//   eval SCRIPT-IN-BASE64 KEYS KEY… ARGUMENT…                        the script's answer
//   storm KIND NAME CONTENDERS MS HOLD-MICROS LEASE [own]
//     one line `hold CONTENDER ASKED START END DONE TOKEN` for each hold, in nanoseconds of the
//     monotonic clock, and `done HOLDS ERRORS FIRST-ERROR`; with `own` each has a name of its own
//   interrupt                                                        interrupts what it waits for
//   where OTHER                                                      parked, in the wait for a
//                                                                     message, or elsewhere
//
// Kinds: lock fenced fair read write spin once multi redlock permits semaphore latch. `multi` takes
// several names with commas between, `once` is the lock that does not re-enter. Any failure is
// answered by `failed CLASS MESSAGE`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RScript;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

public class RedissonDriver {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private static final long FOR_EVER = TimeUnit.DAYS.toMillis(1);
    private static final List<RedissonClient> CLIENTS = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        List<String> addresses = new ArrayList<>();
        Map<String, String> settings = new HashMap<>();
        for (String argument : Arrays.asList(arguments).subList(1, arguments.length)) {
            int at = argument.indexOf('=');
            if (at < 0) {
                addresses.add(argument);
            } else {
                settings.put(argument.substring(0, at), argument.substring(at + 1));
            }
        }
        if (arguments[0].equals("redlock")) {
            for (String address : addresses) {
                CLIENTS.add(Redisson.create(config("single", List.of(address), settings)));
            }
        } else {
            CLIENTS.add(Redisson.create(config(arguments[0], addresses, settings)));
        }
        String version = Redisson.class.getPackage().getImplementationVersion();
        say("ready " + version + " " + CLIENTS.get(0).getId());
        Map<String, Worker> workers = new HashMap<>();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = requests.readLine()) != null;) {
            String[] words = line.split(" ");
            Worker worker = workers.computeIfAbsent(words[0], Worker::new);
            if (words[1].equals("interrupt")) {
                worker.interrupt();
            } else if (words[1].equals("where")) {
                say(words[0] + " " + where(workers.get(words[2])));
            } else {
                worker.requests.add(words);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** A waiter of Redisson's parks in a semaphore until a message comes. */
    private static String where(Thread thread) {
        for (StackTraceElement at : thread.getStackTrace()) {
            if (at.getClassName().equals("java.util.concurrent.Semaphore")) {
                return "parked";
            }
        }
        return "elsewhere";
    }

    private static Config config(String mode, List<String> addresses, Map<String, String> settings) {
        Config config = new Config();
        boolean pool = settings.containsKey("pool");
        if (!pool) {
            config.setThreads(8).setNettyThreads(4);
        }
        long watchdog = Long.parseLong(settings.getOrDefault("watchdog", "30000"));
        config.setLockWatchdogTimeout(watchdog);
        // This machine can be slow: a late answer must not count as lost.
        int timeout = Integer.parseInt(settings.getOrDefault("timeout", "10000"));
        if (mode.equals("single")) {
            SingleServerConfig single = config.useSingleServer().setAddress(addresses.get(0));
            base(single, timeout);
            if (!pool) {
                single.setConnectionMinimumIdleSize(2).setSubscriptionConnectionMinimumIdleSize(1);
            }
            return config;
        }
        BaseMasterSlaveServersConfig<?> servers;
        if (mode.equals("sentinel")) {
            String[] sentinels = addresses.subList(1, addresses.size()).toArray(new String[0]);
            servers = config.useSentinelServers().setMasterName(addresses.get(0))
                .addSentinelAddress(sentinels);
        } else {
            servers = config.useClusterServers().setScanInterval(1000)
                .addNodeAddress(addresses.toArray(new String[0]));
        }
        base(servers, timeout);
        if (!pool) {
            servers.setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
            servers.setSubscriptionConnectionMinimumIdleSize(1);
        }
        return config;
    }

    private static void base(BaseConfig<?> config, int timeout) {
        config.setTimeout(timeout).setConnectTimeout(timeout).setSubscriptionTimeout(timeout);
    }

    /** The requests of one thread. */
    private static final class Worker extends Thread {
        final LinkedBlockingQueue<String[]> requests = new LinkedBlockingQueue<>();
        private final Objects objects = new Objects();

        Worker(String name) {
            super(name);
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            while (true) {
                String answer;
                try {
                    answer = answer(requests.take());
                } catch (Throwable failure) {
                    answer = "failed " + text(failure);
                }
                say(getName() + " " + answer);
            }
        }

        private String answer(String[] words) throws Exception {
            String verb = words[1];
            switch (verb) {
                case "id":
                    return Long.toString(getId());
                case "eval":
                    return eval(words);
                case "storm":
                    return storm(this, words);
                default:
                    return objects.answer(verb, words[2], words[3],
                        Arrays.copyOfRange(words, 4, words.length));
            }
        }
    }

    private static String eval(String[] words) {
        String script = new String(Base64.getDecoder().decode(words[2]));
        int keys = Integer.parseInt(words[3]);
        List<Object> names = new ArrayList<>(Arrays.asList(words).subList(4, 4 + keys));
        Object[] values = Arrays.copyOfRange(words, 4 + keys, words.length, Object[].class);
        RScript scripts = CLIENTS.get(0).getScript(StringCodec.INSTANCE);
        return String.valueOf((Object) scripts.eval(
            RScript.Mode.READ_WRITE, script, RScript.ReturnType.VALUE, names, values));
    }

    /** The objects of one thread: each is made once, as programs keep theirs. */
    private static final class Objects {
        private final Map<String, Object> made = new HashMap<>();

        @SuppressWarnings("unchecked")
        private <T> T of(String kind, String name) {
            return (T) made.computeIfAbsent(kind + " " + name, key -> make(kind, name));
        }

        private Object make(String kind, String name) {
            RedissonClient client = CLIENTS.get(0);
            switch (kind) {
                case "lock": return client.getLock(name);
                case "fenced": return client.getFencedLock(name);
                case "fair": return client.getFairLock(name);
                case "read": return client.getReadWriteLock(name).readLock();
                case "write": return client.getReadWriteLock(name).writeLock();
                case "spin": return client.getSpinLock(name);
                case "permits": return client.getPermitExpirableSemaphore(name);
                case "semaphore": return client.getSemaphore(name);
                case "latch": return client.getCountDownLatch(name);
                case "once": return nonReentrant(client, name);
                case "multi": return client.getMultiLock(locks(List.of(client), name.split(",")));
                case "redlock": return client.getRedLock(locks(CLIENTS, name));
                default: throw new IllegalArgumentException("no kind " + kind);
            }
        }

        private static RLock[] locks(List<RedissonClient> clients, String... names) {
            List<RLock> locks = new ArrayList<>();
            for (RedissonClient client : clients) {
                for (String name : names) {
                    locks.add(client.getLock(name));
                }
            }
            return locks.toArray(new RLock[0]);
        }

        /** Redisson has it since 4.4. */
        private static Object nonReentrant(RedissonClient client, String name) {
            try {
                return client.getClass().getMethod("getNonReentrantLock", String.class)
                    .invoke(client, name);
            } catch (ReflectiveOperationException missing) {
                throw new UnsupportedOperationException("this version has it not");
            }
        }

        String answer(String verb, String kind, String name, String[] rest) throws Exception {
            switch (verb) {
                case "acquire":
                    String held = acquire(kind, name, number(rest, 0), number(rest, 1));
                    return held == null ? "busy" : "held " + held;
                case "release":
                    return release(kind, name, rest.length > 0 ? rest[0] : "");
                case "set":
                case "add":
                case "free":
                case "drain":
                case "down":
                case "await":
                    return counted(verb, kind, name, rest);
                case "token":
                    return String.valueOf(this.<RFencedLock>of(kind, name).getToken());
                case "count":
                    if (kind.equals("latch")) {
                        return Long.toString(this.<RCountDownLatch>of(kind, name).getCount());
                    }
                    return Integer.toString(this.<RLock>of(kind, name).getHoldCount());
                default:
                    return asked(verb, of(kind, name));
            }
        }

        private static String asked(String verb, RLock lock) {
            switch (verb) {
                case "force": return Boolean.toString(lock.forceUnlock());
                case "mine": return Boolean.toString(lock.isHeldByCurrentThread());
                case "locked": return Boolean.toString(lock.isLocked());
                case "left": return Long.toString(lock.remainTimeToLive());
                default: throw new IllegalArgumentException("no verb " + verb);
            }
        }

        /** Returns the token or the id of the permit, `-` without one, or null if it is busy. */
        String acquire(String kind, String name, long wait, long lease) throws Exception {
            long within = wait < 0 ? FOR_EVER : wait;
            switch (kind) {
                case "fenced":
                    RFencedLock fenced = of(kind, name);
                    Long token = fenced.tryLockAndGetToken(within, lease, MS);
                    return token == null ? null : token.toString();
                case "permits":
                    RPermitExpirableSemaphore permits = of(kind, name);
                    return permits.tryAcquire(within, lease, MS);
                case "semaphore":
                    RSemaphore semaphore = of(kind, name);
                    return semaphore.tryAcquire(1, within, MS) ? "-" : null;
                default:
                    RLock lock = of(kind, name);
                    if (wait < 0) {
                        lock.lockInterruptibly(lease, MS);
                        return "-";
                    }
                    boolean held = wait == 0 && lease < 0
                        ? lock.tryLock() : lock.tryLock(wait, lease, MS);
                    return held ? "-" : null;
            }
        }

        String release(String kind, String name, String permit) {
            if (kind.equals("permits")) {
                boolean done = this.<RPermitExpirableSemaphore>of(kind, name).tryRelease(permit);
                return done ? "released" : "not-held";
            }
            if (kind.equals("semaphore")) {
                this.<RSemaphore>of(kind, name).release();
                return "released";
            }
            try {
                this.<RLock>of(kind, name).unlock();
                return "released";
            } catch (IllegalMonitorStateException notOurs) {
                return "not-held";
            }
        }

        private String counted(String verb, String kind, String name, String[] rest)
                throws Exception {
            if (kind.equals("latch")) {
                RCountDownLatch latch = of(kind, name);
                switch (verb) {
                    case "set": return Boolean.toString(latch.trySetCount(number(rest, 0)));
                    case "await": return latch.await(number(rest, 0), MS) ? "open" : "closed";
                    default:
                        latch.countDown();
                        return "done";
                }
            }
            int count = (int) (rest.length > 0 ? number(rest, 0) : 0);
            if (kind.equals("permits")) {
                RPermitExpirableSemaphore permits = of(kind, name);
                switch (verb) {
                    case "set": return Boolean.toString(permits.trySetPermits(count));
                    case "free": return Integer.toString(permits.availablePermits());
                    default:
                        permits.addPermits(count);
                        return "done";
                }
            }
            RSemaphore semaphore = of(kind, name);
            switch (verb) {
                case "set": return Boolean.toString(semaphore.trySetPermits(count));
                case "free": return Integer.toString(semaphore.availablePermits());
                case "drain": return Integer.toString(semaphore.drainPermits());
                default:
                    semaphore.addPermits(count);
                    return "done";
            }
        }
    }

    private static long number(String[] words, int at) {
        return Long.parseLong(words[at]);
    }

    /** One contender of a storm, and all its holds. */
    private static final class Contender extends Thread {
        final List<String> holds = new ArrayList<>();
        int errors;
        String first = "";
        private final Objects objects = new Objects();
        private final String[] words;
        private final int at;
        private final long end;

        Contender(String[] words, int at, long end) {
            this.words = words;
            this.at = at;
            this.end = end;
            setDaemon(true);
        }

        @Override
        public void run() {
            String kind = words[2];
            String name = words.length > 8 ? words[3] + ":" + at : words[3];
            long hold = TimeUnit.MICROSECONDS.toNanos(Long.parseLong(words[6]));
            long lease = Long.parseLong(words[7]);
            while (System.nanoTime() < end) {
                try {
                    long asked = System.nanoTime();
                    // Not for ever: a contender that still waits when the storm is over gives up.
                    long wait = Math.max(1, TimeUnit.NANOSECONDS.toMillis(end - asked));
                    String held = objects.acquire(kind, name, wait, lease);
                    if (held == null) {
                        continue;
                    }
                    long start = System.nanoTime();
                    if (hold > 0) {
                        LockSupport.parkNanos(hold);
                    }
                    long stop = System.nanoTime();
                    String released = objects.release(kind, name, held);
                    long done = System.nanoTime();
                    String times = asked + " " + start + " " + stop + " " + done + " " + held;
                    holds.add(at + " " + times);
                    if (!released.equals("released")) {
                        fails(released);
                    }
                } catch (Exception failure) {
                    fails(text(failure));
                }
            }
        }

        private void fails(String what) {
            errors += 1;
            first = first.isEmpty() ? what : first;
        }
    }

    private static String storm(Thread asker, String[] words) throws Exception {
        long end = System.nanoTime() + MS.toNanos(Long.parseLong(words[5]));
        List<Contender> contenders = new ArrayList<>();
        for (int at = 0; at < Integer.parseInt(words[4]); at++) {
            contenders.add(new Contender(words, at, end));
        }
        contenders.forEach(Thread::start);
        int holds = 0;
        int errors = 0;
        String first = "";
        for (Contender contender : contenders) {
            contender.join();
            holds += contender.holds.size();
            errors += contender.errors;
            first = first.isEmpty() ? contender.first : first;
            StringBuilder lines = new StringBuilder();
            for (String hold : contender.holds) {
                lines.append(asker.getName()).append(" hold ").append(hold).append('\n');
            }
            if (lines.length() > 0) {
                lines.setLength(lines.length() - 1);
                say(lines.toString());
            }
        }
        return "done " + holds + " " + errors + " " + first;
    }

    private static String text(Throwable failure) {
        String text = failure.getClass().getSimpleName() + " " + failure.getMessage();
        if (failure.getCause() != null && failure.getCause() != failure) {
            text += ", by " + failure.getCause();
        }
        return text.replace('\n', ' ').replace('\r', ' ');
    }

    private static synchronized void say(String lines) {
        System.out.println(lines);
        System.out.flush();
    }
}
