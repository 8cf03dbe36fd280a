// The drop-in of npm's redlock: beside the originals on the same keys, and call by call.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';

import Redlock, { ExecutionError, Lock, LockError, ResourceLockedError } from '../redlock.mjs';
import { servers } from './servers.mjs';

const require = createRequire(import.meta.url);
const Redis = require('ioredis');
const Bluebird = require('bluebird');
const { urlOf } = require('../redlock-url.cjs');
const ORIGINALS = {
  'redlock 4': require('redlock4'),
  'redlock 5': require('redlock5').default,
};
/** A lease that nobody loses here, in ms. */
const LONG = 60_000;
/** A lease that is renewed soon, and outlives a stall. */
const RENEWED = 15_000;
/** Looks once. */
const ONCE = { retryCount: 0 };
/** Waits for longer than the lease of anybody here. */
const PATIENT = { retryCount: 6000, retryDelay: 20, retryJitter: 0 };

let running;
/** Clients of ioredis: of one server, of each of three others, of a cluster, and of Sentinels. */
let clients;
const others = [];
before(async () => {
  const kinds = [servers('redis', 4), servers('redis-cluster'), servers('sentinel')];
  const started = await Promise.allSettled(kinds);
  others.push(...started.slice(1).flatMap(({ value }) => value ?? []));
  running = started[0].value;
  for (const { reason } of started) if (reason) throw reason;
  const [cluster, group] = others.map(({ urls: [url] }) => addressesOf(url));
  const all = running.urls.map((url) => new Redis(url));
  clients = {
    'one server': all.slice(0, 1),
    'three servers': all.slice(1),
    'a cluster': [new Redis.Cluster(cluster.nodes)],
    'a group of Sentinels': [new Redis({ sentinels: group.nodes, name: group.name })],
  };
});
after(async () => {
  for (const client of Object.values(clients ?? {}).flat()) client.disconnect();
  await Promise.all([running, ...others].map((one) => one?.stop()));
});

/** The nodes in the URL of a cluster or of Sentinels, and the name of the group. */
function addressesOf(url) {
  const [, nodes, name] = /^[a-z+-]+:\/\/([^/?]+)(?:\/([^/?]+))?/.exec(url);
  const addresses = nodes.split(',').map((node) => node.split(':'));
  return { nodes: addresses.map(([host, port]) => ({ host, port: Number(port) })), name };
}

/** The value of a lock's key. */
const valueAt = (place, name) => clients[place][0].get(name);

const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
let names = 0;
const fresh = () => `redlock/${(names += 1)}`;

async function isBusy(acquiring) {
  const error = await acquiring.then(
    () => undefined,
    (reason) => reason,
  );
  if (error) assert.match(error.name, /^(ExecutionError|LockError)$/, error.stack);
  return error !== undefined;
}

for (const [version, Original] of Object.entries(ORIGINALS)) {
  for (const place of ['one server', 'three servers', 'a cluster', 'a group of Sentinels']) {
    test(`${version} and the drop-in exclude each other on ${place}`, async () => {
      const sides = [new Original(clients[place], ONCE), new Redlock(clients[place], ONCE)];
      for (const [holder, other] of [sides, sides.toReversed()]) {
        const name = fresh();
        const lock = await holder.acquire([name], LONG);
        assert.ok(await isBusy(other.acquire([name], LONG)));
        await lock.extend(LONG);
        assert.ok(await isBusy(other.acquire([name], LONG)));
        await holder.release(lock);
        const next = await other.acquire([name], LONG);
        // A late release changes nothing.
        await assert.rejects(Promise.resolve(holder.release(lock)));
        assert.ok(await isBusy(holder.acquire([name], LONG)));
        await other.release(next);
      }
    });

    test(`${version} and the drop-in wait for each other on ${place}`, async () => {
      const sides = [new Original(clients[place], PATIENT), new Redlock(clients[place], PATIENT)];
      for (const [holder, other] of [sides, sides.toReversed()]) {
        const name = fresh();
        const lock = await holder.acquire([name], LONG);
        let released = false;
        const waiting = other.acquire([name], LONG).then((won) => [won, released]);
        await holder.acquire([fresh()], 1000);
        released = true;
        await holder.release(lock);
        const [won, wasReleased] = await waiting;
        assert.ok(wasReleased);
        await other.release(won);
        // What ends by itself.
        await holder.acquire([name], 100);
        await other.release(await other.acquire([name], LONG));
      }
    });

    test(`${version} and the drop-in exclude each other for several resources on ${place}`, async () => {
      const sides = [new Original(clients[place], ONCE), new Redlock(clients[place], ONCE)];
      for (const [holder, other] of [sides, sides.toReversed()]) {
        // On a cluster, redlock's resources have one slot.
        const [one, two, three] = [fresh(), fresh(), fresh()].map((name) => `${name}{slot}`);
        const lock = await holder.acquire([two, one], LONG);
        assert.ok(await isBusy(other.acquire([three, two], LONG)));
        // All or none.
        await other.release(await other.acquire([three], LONG));
        await holder.release(lock);
        await other.release(await other.acquire([three, two, one], LONG));
      }
    });
  }
}

test('a lock has what redlock 5 promises, and a token', async () => {
  const redlock = new Redlock(clients['one server']);
  const [first, second] = [fresh(), fresh()];
  const began = Date.now();
  const lock = await redlock.acquire([second, first], LONG);
  assert.ok(lock instanceof Lock);
  assert.deepEqual(lock.resources, [second, first]);
  assert.match(lock.value, /^[0-9a-f]{32}$/);
  assert.ok(lock.expiration >= began + LONG - LONG / 100 - 2 && lock.expiration <= Date.now() + LONG);
  const [stats] = await Promise.all(lock.attempts);
  assert.deepEqual([lock.attempts.length, stats.votesFor.size, stats.quorumSize], [1, 1, 1]);
  assert.equal(lock.fencingToken, lock.fencingTokens[0]);
  const again = await lock.extend(LONG);
  assert.equal(again, lock);
  await lock.release();
  assert.equal(lock.expiration, 0);
  const later = await redlock.acquire([second], LONG);
  assert.ok(later.fencingToken > lock.fencingToken);
  await later.release();
});

test('a busy lock is an ExecutionError, a LockError, and an event', async () => {
  const redlock = new Redlock(clients['one server'], { retryCount: 3, retryDelay: 10 });
  const name = fresh();
  const lock = await redlock.acquire([name], LONG);
  const events = [];
  redlock.on('error', (error) => events.push(error));
  const error = await redlock.acquire([name], LONG).catch((reason) => reason);
  assert.ok(error instanceof ExecutionError && error instanceof LockError);
  assert.equal(error.attempts.length, 4);
  const [{ votesAgainst }] = await Promise.all(error.attempts);
  assert.ok(votesAgainst.get(clients['one server'][0]) instanceof ResourceLockedError);
  assert.ok(events.length > 0 && events.every((event) => event instanceof ResourceLockedError));
  const old = await redlock.lock(name, LONG).catch((reason) => reason);
  assert.deepEqual([old.name, old.attempts], ['LockError', 4]);
  await lock.release();
});

/** A function of its own, so that its timer knows no lock. */
function deleteSoon(place, name) {
  const gc = collector();
  setTimeout(async () => {
    gc();
    await Promise.all(clients[place].map((client) => client.del(name)));
  }, 100);
}

for (const place of ['one server', 'three servers', 'a cluster', 'a group of Sentinels']) {
  test(`using runs under a lease that is renewed, and aborts when it is lost, on ${place}`, async () => {
    const redlock = new Redlock(clients[place]);
    const name = fresh();
    const [client] = clients[place];
    const value = await redlock.using([name], RENEWED, async (signal) => {
      const before = Date.now() + (await client.pttl(name));
      // event: its expiry moves
      while (Date.now() + (await client.pttl(name)) < before + RENEWED / 10) await pause();
      assert.ok(await isBusy(new ORIGINALS['redlock 5'](clients[place], ONCE).acquire([name], LONG)));
      return signal.aborted;
    });
    assert.equal(value, false);
    const lost = redlock.using([name], RENEWED, async (signal) => {
      // Nothing but the wait below knows the lock, and it stays.
      deleteSoon(place, name);
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      assert.ok(signal.error instanceof ExecutionError);
      throw signal.error;
    });
    await assert.rejects(lost, ExecutionError);
  });
}

test('a lost lock can neither be released nor extended', async () => {
  for (const place of Object.keys(clients)) {
    const redlock = new Redlock(clients[place]);
    const [one, two] = [await redlock.acquire([fresh()], LONG), await redlock.lock(fresh(), LONG)];
    for (const lock of [one, two]) {
      await Promise.all(clients[place].map((client) => client.del(lock.resources[0])));
    }
    await assert.rejects(one.extend(LONG), ExecutionError);
    await assert.rejects(one.release(), ExecutionError);
    await assert.rejects(two.extend(LONG), { name: 'LockError' });
    await assert.rejects(two.unlock(), { name: 'LockError' });
  }
});

test('a lease is extended beyond its duration, and never shortened', async () => {
  for (const [place, [client]] of Object.entries(clients)) {
    const redlock = new Redlock(clients[place]);
    const lock = await redlock.acquire([fresh()], LONG / 2);
    await lock.extend(LONG);
    assert.ok(lock.expiration > Date.now() + LONG / 2, place);
    await lock.extend(LONG / 2);
    assert.ok((await client.pttl(lock.resources[0])) > LONG / 2, place);
    await lock.release();
    await assert.rejects(lock.release(), ExecutionError);
  }
});

test('over several servers and on a cluster there is no token, and the value is that of the keys', async () => {
  for (const place of ['three servers', 'a cluster']) {
    const lock = await new Redlock(clients[place]).acquire([fresh()], LONG);
    assert.equal(lock.fencingToken, undefined);
    assert.equal(await valueAt(place, lock.resources[0]), lock.value);
    await lock.release();
  }
  const lock = await new Redlock(clients['a group of Sentinels']).acquire([fresh()], LONG);
  assert.ok(lock.fencingToken > 0n);
  assert.ok((await valueAt('a group of Sentinels', lock.resources[0])).startsWith(lock.value));
  await lock.release();
});

test('on a cluster, resources of several slots are locked, also by a client of node-redis', async () => {
  const { createCluster } = require('redis5');
  const [{ urls }] = others;
  const rootNodes = addressesOf(urls[0]).nodes.map((socket) => ({ socket }));
  const redlock = new Redlock([createCluster({ rootNodes })]);
  const names = Array.from({ length: 5 }, fresh);
  const lock = await redlock.acquire(names, LONG);
  for (const name of names) {
    assert.ok(await isBusy(new ORIGINALS['redlock 5'](clients['a cluster'], ONCE).acquire([name], LONG)));
  }
  await lock.release();
  await assert.rejects(lock.release(), ExecutionError);
});

test('a lock that nobody references stays until its expiry', async () => {
  const [name, other] = [fresh(), fresh()];
  await new Redlock(clients['one server']).acquire([name], LONG);
  await new Redlock(clients['three servers']).acquire([other], LONG);
  const gc = collector();
  // For longer than a lock is young, and no garbage for that.
  for (let round = 0; round < 100; round += 1) {
    gc();
    await pause();
  }
  assert.ok(await isBusy(new Redlock(clients['one server'], ONCE).acquire([name], LONG)));
  assert.ok(await isBusy(new Redlock(clients['three servers'], ONCE).acquire([other], LONG)));
});

function collector() {
  require('node:v8').setFlagsFromString('--expose-gc');
  return require('node:vm').runInNewContext('gc');
}

test('the disposer of redlock 4 is one of bluebird', async () => {
  const redlock = new Redlock(clients['one server']);
  const name = fresh();
  await Bluebird.using(redlock.disposer(name, LONG), async (lock) => {
    assert.equal(lock.attempts, 1);
    assert.ok(await isBusy(new Redlock(clients['one server'], ONCE).acquire([name], LONG)));
  });
  await (await new Redlock(clients['one server'], ONCE).acquire([name], LONG)).release();
});

test('clients of node-redis and with a key prefix lock the keys of their originals', async () => {
  const [url] = running.urls;
  const { createClient } = require('redis5');
  const name = fresh();
  const lock = await new Redlock([createClient({ url })]).acquire([name], LONG);
  assert.ok(await isBusy(new ORIGINALS['redlock 5'](clients['one server'], ONCE).acquire([name], LONG)));
  await lock.release();
  for (const keyPrefix of ['app:', 'a b&c%d:']) {
    const client = new Redis(url, { keyPrefix });
    const original = await new ORIGINALS['redlock 5']([client]).acquire([name], LONG);
    assert.ok(await isBusy(new Redlock([client], ONCE).acquire([name], LONG)), keyPrefix);
    await original.release();
    const ours = await new Redlock([client], ONCE).acquire([name], LONG);
    assert.ok(await isBusy(new ORIGINALS['redlock 5']([client], ONCE).acquire([name], LONG)), keyPrefix);
    await ours.release();
    client.disconnect();
  }
});

test('the URL is that of the clients, or they are refused with the reason', () => {
  const { createClient, createCluster, createSentinel } = require('redis5');
  const cluster = (nodes, options) => new Redis.Cluster(nodes, { lazyConnect: true, ...options });
  const sentinels = (options) => offline({ sentinels: [{ host: 'h' }, { host: 'i', port: 7 }], name: 'm', ...options });
  const offline = (...words) => new Redis(...words, { lazyConnect: true });
  const several = (...urls) => urls.map((url) => offline(url));
  const keys = 'dialect=plain&key_template={name}';
  const good = [
    [[offline('redis://h:1/4')], `redis://h:1/4?${keys}`],
    [[offline('rediss://u:p%20w@h')], `rediss://u:p%20w@h:6379/0?${keys}`],
    [[offline('redis://[::1]:7')], `redis://[::1]:7/0?${keys}`],
    [[offline('/run/r.sock')], `redis+unix:///run/r.sock?db=0&${keys}`],
    [[createClient()], `redis://localhost:6379/0?${keys}`],
    [[createClient({ url: 'rediss://:p@h:1/2' })], `rediss://:p@h:1/2?${keys}`],
    [[createClient({ socket: { path: '/r' }, database: 3 })], `redis+unix:///r?db=3&${keys}`],
    [several('redis://a', 'redis://b:1', 'redis://c'), `redlock://a:6379,b:1,c:6379/0?${keys}&fencing=off`],
    [['redlock://a,b,c?x=y'], 'redlock://a,b,c?x=y'],
    [[cluster(['redis://h:1', { host: '::1', port: '2' }, 3, 'i'])], `redis-cluster://h:1,[::1]:2,127.0.0.1:3,i:6379?${keys}&fencing=off`],
    [[cluster(['rediss://u:p%20w@h'])], `rediss-cluster://u:p%20w@h:6379?${keys}&fencing=off`],
    [
      [cluster([{ host: 'h' }], { redisOptions: { username: 'u', password: 'p', tls: {} }, keyPrefix: '{a}' })],
      'rediss-cluster://u:p@h:6379?dialect=plain&key_template=%7Ba%7D{name}&fencing=off',
    ],
    [[createCluster({ rootNodes: [{ url: 'redis://:p@h:1' }, { socket: { host: 'i' }, password: 'p' }] })], `redis-cluster://:p@h:1,i:6379?${keys}&fencing=off`],
    [[createCluster({ rootNodes: [{ url: 'redis://h' }], defaults: { username: 'u', password: 'p', socket: { tls: true } } })], `rediss-cluster://u:p@h:6379?${keys}&fencing=off`],
    [[sentinels()], `redis+sentinel://h:26379,i:7/m/0?${keys}`],
    [[sentinels({ username: 'u', password: 'p', db: 2, name: 'a b', keyPrefix: 'x:' })], 'redis+sentinel://u:p@h:26379,i:7/a%20b/2?dialect=plain&key_template=x:{name}'],
    [[sentinels({ tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true })], `rediss+sentinel://h:26379,i:7/m/0?${keys}`],
  ];
  for (const [given, url] of good) assert.equal(urlOf(given), url);
  const bad = [
    [several('redis://a/1', 'redis://a/2'), /differ in `db`/],
    [several('redis://a', 'redis://a'), /two clients lead to a:6379/],
    [several('redis://a', 'rediss://b'), /differ in `tls`/],
    [[offline({ host: 'h', tls: { ca: 'x' } })], /`tls.ca` has no place in a URL/],
    [[createClient({ socket: { tls: true, rejectUnauthorized: false } })], /`tls.rejectUnauthorized`/],
    [[createClient({ credentialsProvider: { type: 'x' } })], /`credentialsProvider` has no place in a URL/],
    [[cluster(['redis://h']), cluster(['redis://i'])], /a client alone/],
    [[cluster(['redis://h', 'rediss://i'])], /the nodes differ in `tls`/],
    [[cluster(['redis://h'], { natMap: { 'a:1': { host: 'b', port: 1 } } })], /`natMap` has no place in a URL/],
    [[cluster([{ host: 'h', tls: { ca: 'x' } }])], /`tls.ca` has no place/],
    [[createCluster({ rootNodes: [{ url: 'redis://h' }], nodeAddressMap: {} })], /`nodeAddressMap` has no place/],
    [[createSentinel({ name: 'm', sentinelRootNodes: [{ host: 'h', port: 1 }] })], /`redis\+sentinel:/],
    [[sentinels({ sentinelPassword: 'x' })], /`sentinelPassword` .* `sentinel_password_file=`/],
    [[sentinels({ sentinelTLS: {} })], /`sentinelTLS` and `enableTLSForSentinelMode` differ/],
    [[sentinels({ role: 'slave' })], /locks are on the master/],
    [[sentinels({ natMap: {} })], /`natMap` has no place/],
    [['redis://h', 'redis://i'], /one URL stands in place/],
    [[{}], /not a client of ioredis or node-redis/],
  ];
  for (const [given, why] of bad) assert.throws(() => new Redlock(given), why);
  assert.throws(() => new Redlock([offline('redis://h')], {}, { acquireScript: 'x' }), /`acquireScript`/);
});

test('what cannot be locked is refused at once', async () => {
  const redlock = new Redlock(clients['one server']);
  await assert.rejects(redlock.acquire([], LONG), /`resources` is empty/);
  await assert.rejects(redlock.acquire([fresh()], 1.5), /must be an integer/);
  await assert.rejects(redlock.acquire([fresh()], 10), (error) => error.cause.code === 'invalid' && /from 50ms/.test(error.message));
  await assert.rejects(redlock.using([fresh()], 500, async () => {}), /at least 100ms greater/);
});

test('a server that is away is an error within the limit', async () => {
  const own = await servers('redis');
  const client = new Redis(own.urls[0]);
  client.on('error', () => {});
  const redlock = new Redlock([client], { retryCount: 2, retryDelay: 50 });
  await own.stop();
  const seen = [];
  redlock.on('clientError', (error) => seen.push(error.code));
  await assert.rejects(redlock.acquire([fresh()], LONG), ExecutionError);
  assert.ok(seen.length > 0 && !seen.includes('busy'), seen);
  client.disconnect();
});
