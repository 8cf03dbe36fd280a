// A driver of Apache Curator's locks, for the tests of the ZooKeeper engine. One request a line,
// answered when it is done: `mutex|read|write ID PATH` with `held ID`, `unlock ID` with
// `unlocked ID`. Each contender is a thread of its own, all of one session.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
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

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
