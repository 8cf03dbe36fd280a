// A driver of Apache Curator's locks, for the tests of the ZooKeeper engine. One request a line,
// answered when it is done: `mutex|read|write|selector|latch ID PATH` with `held ID`, `unlock ID`
// with `unlocked ID`. Each contender is a thread of its own, all of one session. A `selector` is a
// candidate of a `LeaderSelector`, a `latch` one of a `LeaderLatch`; both hold while they lead.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryNTimes;

public class Peer {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            arguments[0], 10_000, 30_000, new RetryNTimes(100, 200));
        client.start();
        client.blockUntilConnected();
        Map<String, CountDownLatch> held = new ConcurrentHashMap<>();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = requests.readLine()) != null;) {
            String[] words = line.split(" ");
            if (words[0].equals("unlock")) {
                held.remove(words[1]).countDown();
                continue;
            }
            CountDownLatch unlocked = new CountDownLatch(1);
            held.put(words[1], unlocked);
            Thread contender = new Thread(() -> contend(client, words, unlocked));
            contender.setDaemon(true);
            contender.start();
        }
        client.close();
    }

    private static InterProcessLock lock(CuratorFramework client, String kind, String path) {
        switch (kind) {
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "write":
                return new InterProcessReadWriteLock(client, path).writeLock();
            default:
                return new InterProcessMutex(client, path);
        }
    }

    private static void contend(CuratorFramework client, String[] words, CountDownLatch unlocked) {
        try {
            if (words[0].equals("selector")) {
                select(client, words, unlocked);
                return;
            }
            if (words[0].equals("latch")) {
                LeaderLatch latch = new LeaderLatch(client, words[2]);
                latch.start();
                latch.await();
                say("held " + words[1]);
                unlocked.await();
                latch.close();
                say("unlocked " + words[1]);
                return;
            }
            InterProcessLock lock = lock(client, words[0], words[2]);
            lock.acquire();
            say("held " + words[1]);
            unlocked.await();
            lock.release();
            say("unlocked " + words[1]);
        } catch (Exception failure) {
            say("failed " + words[1] + " " + failure);
        }
    }

    private static void select(CuratorFramework client, String[] words, CountDownLatch unlocked)
            throws Exception {
        CountDownLatch led = new CountDownLatch(1);
        LeaderSelectorListenerAdapter leads = new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework framework) throws Exception {
                say("held " + words[1]);
                unlocked.await();
                led.countDown();
            }
        };
        LeaderSelector selector = new LeaderSelector(client, words[2], leads);
        selector.start();
        led.await();
        say("unlocked " + words[1]);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
