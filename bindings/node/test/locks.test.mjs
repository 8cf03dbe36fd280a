// Locks on each kind of engine.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import {
  connect,
  CancelledError,
  InvalidError,
  Leadership,
  Lock,
  LostError,
  TimedOutError,
  UnsupportedError,
} from '../index.mjs';
import { aborted, aName, eventually, LONG, SOON, Stores } from './ground.mjs';

const stores = new Stores();
after(() => stores.stop());

async function isHeld(client, name) {
  return (await client.inspect(name)).held;
}

for (const engine of ['memory', 'local', 'redis', 'redlock', 'postgres']) {
  describe(engine, { concurrency: false }, () => {
    let client;
    // That of a quorum is not longer.
    const long = engine === 'redlock' ? '60s' : LONG;
    const ready = async () => (client ??= await connect(await stores.url(engine)));
    after(async () => assert.equal(await client?.close(), true));

    test('a lock is held until its release', async () => {
      const name = aName();
      await ready();
      const lock = await client.lock(name, { reason: 'a test', labels: { team: 'nights' } });
      assert.ok(lock instanceof Lock);
      assert.equal(lock.name, name);
      assert.equal(lock.mode, 'exclusive');
      assert.match(lock.leaseId, /^[0-9a-f]{32}$/);
      assert.ok(lock.isValid && lock.remaining > 0);
      assert.ok(await isHeld(client, name));
      assert.ok((await lock.renew()) > 0);
      assert.ok((await lock.renew('45s')) > 35_000);
      assert.ok((await lock.renew()) > 35_000, 'later ones are as long');
      await assert.rejects(lock.renew('25h'), InvalidError);
      const outcome = await lock.release();
      assert.equal(outcome.confirmed, true);
      assert.ok(outcome.heldFor > 0);
      assert.equal(outcome.lost, null);
      assert.equal(outcome.failure, null);
      assert.equal(lock.isValid, false);
      assert.equal(lock.signal.aborted, false);
      assert.equal(await isHeld(client, name), false);
      assert.deepEqual(await lock.release(), outcome, 'a second release changes nothing');
    });

    test('tokens grow', async () => {
      const name = aName();
      await ready();
      const first = await client.using(name, (lock) => lock.fencingToken);
      const second = await client.using(name, (lock) => lock.fencingToken);
      assert.equal(typeof first, 'bigint');
      assert.ok(second > first);
    });

    test('a name that is held is null for tryLock, and a time-out for lock', async () => {
      const name = aName();
      await ready();
      const lock = await client.lock(name);
      assert.equal(await client.tryLock(name), null);
      const error = await client.lock(name, { wait: '50ms' }).catch((error) => error);
      assert.ok(error instanceof TimedOutError);
      assert.equal(error.code, 'timed_out');
      assert.equal(error.certainty, 'not_applied');
      assert.equal(error.lockName, name);
      assert.ok(error.details.waited >= 50);
      await lock.release();
      await (await client.tryLock(name)).release();
    });

    test('a signal ends the wait and leaves nothing in the queue', async () => {
      const name = aName();
      await ready();
      const lock = await client.lock(name);
      const abort = new AbortController();
      const waiting = client.lock(name, { signal: abort.signal });
      await eventually(async () => {
        const { queue_length: length } = await client.inspect(name);
        // A quorum and others that poll have no queue to look into.
        return length > 0 || engine === 'redlock';
      });
      const reason = new Error('as planned');
      abort.abort(reason);
      await assert.rejects(waiting, reason);
      await eventually(async () => (await client.inspect(name)).queue_length === 0);
      await lock.release();
      await (await client.lock(name, { wait: '1m' })).release();
      await assert.rejects(client.lock(name, { signal: abort.signal }), reason);
      assert.equal(await isHeld(client, name), false);
    });

    test('a release hands the name to one that waits', async () => {
      const name = aName();
      await ready();
      const lock = await client.lock(name);
      const waiting = client.lock(name);
      await lock.release();
      const next = await waiting;
      assert.ok(next.fencingToken > lock.fencingToken);
      await next.release();
    });

    test('max_hold ends a lease: the signal aborts, and the end of a block says so', async () => {
      await ready();
      const options = { maxHold: 300 };
      const job = client.using(aName(), options, (lock) => aborted(lock.signal));
      const error = await job.catch((error) => error);
      assert.ok(error instanceof LostError, String(error));
      assert.equal(error.reason, 'max_hold');
      const lock = await client.lock(aName(), options);
      const { signal } = lock;
      const reason = await aborted(signal);
      assert.ok(reason instanceof LostError && reason.reason === 'max_hold');
      assert.equal(lock.isValid, false);
      assert.equal((await lock.release()).lost, 'max_hold');
    });

    test('the error of a job counts, and the lock is released', async () => {
      const name = aName();
      await ready();
      const reason = new Error('as planned');
      const job = client.using(name, { maxHold: 200 }, async (lock) => {
        await aborted(lock.signal);
        throw reason;
      });
      await assert.rejects(job, reason);
      await assert.rejects(
        client.using(name, () => {
          throw reason;
        }),
        reason,
      );
      assert.equal(await isHeld(client, name), false);
    });

    test('a lease goes to another process as JSON', async () => {
      const name = aName();
      await ready();
      const lock = await client.lock(name, { leaseDuration: long });
      const lease = JSON.parse(JSON.stringify(await lock.detach()));
      assert.equal(lease.name, name);
      assert.ok(await isHeld(client, name));
      await lock[Symbol.asyncDispose]();
      assert.ok(await isHeld(client, name), 'what was detached is not released');
      assert.ok((await client.renew(lease, '20s')) > 0);
      const attached = await client.attach(lease);
      assert.equal(attached.fencingToken, lock.fencingToken);
      const again = await attached.detach();
      assert.equal((await client.release(again)).confirmed, true);
      assert.equal(await isHeld(client, name), false);
    });

    test('all of several names, or one of them', async () => {
      const names = [aName(), aName()];
      await ready();
      const locks = await client.lockAll(names);
      assert.equal(locks.length, 2);
      assert.deepEqual([...locks].map((lock) => lock.name).sort(), [...names].sort());
      assert.ok(locks.isValid && !locks.signal.aborted);
      assert.equal((await locks.release()).length, 2);
      const held = await client.lock(names[0]);
      const one = await client.lockAny(names);
      assert.equal(one.name, names[1]);
      await Promise.all([held.release(), one.release()]);
    });

    test('a job runs once per slot', async () => {
      const name = aName();
      await ready();
      const slot = { every: '1d', leaseDuration: '20s' };
      const job = (lock) => {
        assert.ok(lock.slotStart <= new Date());
        return 42;
      };
      if (engine === 'redlock') {
        await assert.rejects(client.once(name, slot, job), UnsupportedError);
        return;
      }
      assert.deepEqual(await client.once(name, slot, job), { ran: true, value: 42, failure: null });
      const second = await client.once(name, slot, job);
      assert.equal(second.ran, false);
      assert.equal(second.why, 'already_ran');
      assert.equal(second.by.pid, process.pid);
    });

    test('close gives back what is held, and refuses what comes', async () => {
      const name = aName();
      await ready();
      const other = await connect(await stores.url(engine));
      const lock = await other.lock(name, { leaseDuration: long });
      const waiting = other.lock(name).catch((error) => error);
      assert.equal(await other.close(), true);
      assert.ok((await waiting) instanceof CancelledError);
      assert.equal(lock.isValid, false);
      assert.equal(await isHeld(client, name), false);
      await assert.rejects(other.lock(name), CancelledError);
    });
  });
}

test('close waits for releases that are under way', async () => {
  const url = await stores.url('redis');
  const closing = await connect(url);
  const names = Array.from({ length: 20 }, aName);
  const locks = await Promise.all(names.map((name) => closing.lock(name, { leaseDuration: LONG })));
  for (const lock of locks) void lock.release();
  assert.equal(await closing.close(), true);
});

test('close reports the loss to a job that still runs', async () => {
  const url = await stores.url('redis');
  const closing = await connect(url);
  const other = await connect(url);
  const name = aName();
  let begin;
  const begun = new Promise((resolve) => (begin = resolve));
  const job = closing.using(name, async (lock) => {
    const { signal, atRisk } = lock;
    begin();
    await aborted(atRisk);
    assert.ok(atRisk.reason instanceof LostError);
    assert.equal(signal.reason.reason, 'released');
    return signal;
  });
  await begun;
  assert.equal(await closing.close(), true);
  await (await other.lock(name, { wait: SOON })).release();
  await assert.rejects(job, (error) => error instanceof LostError && error.reason === 'released');
  await other.close();
});

test('a grant that comes while the client closes is given back', async () => {
  const client = await connect('memory:closing');
  const other = await connect('memory:closing');
  // In one turn of the event loop: this engine answers at once.
  const locking = client.lock('a', { leaseDuration: LONG }).catch((error) => error);
  const closing = client.close();
  const outcome = await locking;
  assert.ok(outcome instanceof CancelledError, String(outcome));
  await closing;
  await (await other.lock('a', { wait: '1m' })).release();
  await other.close();
});

describe('locks of other kinds', () => {
  let client;
  const ready = async () => (client ??= await connect(await stores.url('redis')));
  after(() => client?.close());

  test('readers share, and a writer is alone', async () => {
    const name = aName();
    await ready();
    const readers = [await client.lock(name, { shared: true })];
    readers.push(await client.lock(name, { shared: true }));
    assert.equal(readers[1].mode, 'shared');
    assert.equal(await client.tryLock(name), null);
    await Promise.all(readers.map((reader) => reader.release()));
    await (await client.tryLock(name)).release();
  });

  test('a semaphore has its permits', async () => {
    const name = aName();
    await ready();
    const two = await client.lock(name, { permits: 3, count: 2 });
    const one = await client.lock(name, { permits: 3 });
    assert.equal(one.mode, 'permits');
    assert.equal(await client.tryLock(name, { permits: 3 }), null);
    await Promise.all([one.release(), two.release()]);
    await assert.rejects(client.lock(name, { permits: 3, count: 4 }), InvalidError);
  });

  test('a leader proclaims, and observers see the leaders', async () => {
    const name = aName();
    await ready();
    assert.equal(await client.leader(name), null);
    const leader = await client.elect(name, 'first');
    assert.ok(leader instanceof Leadership && leader instanceof Lock);
    const seen = client.leaders(name);
    const first = (await seen.next()).value;
    assert.equal(first.value, 'first');
    assert.equal(first.term, leader.term);
    assert.ok(first.since instanceof Date);
    await leader.proclaim('second');
    assert.equal((await client.leader(name)).value, 'second');
    await seen.return();
    await leader.release();
    assert.equal(await client.leader(name), null);
    await assert.rejects(
      client.leaders(name, { signal: AbortSignal.timeout(10) }).next(),
      (error) => error.name === 'TimeoutError',
    );
  });

  test('names are listed', async () => {
    const prefix = `${aName()}/`;
    await ready();
    const names = Array.from({ length: 5 }, (_, number) => `${prefix}${number}`);
    const locks = await client.lockAll(names);
    const listed = [];
    for await (const { name } of client.list(prefix)) listed.push(name);
    assert.deepEqual(listed.sort(), names);
    await locks.release();
  });
});
