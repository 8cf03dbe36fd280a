// A lost lease: what the holder learns, and when.

import assert from 'node:assert/strict';
import { connect as dial } from 'node:net';
import { after, test } from 'node:test';

import { connect, LockError, LostError, UnavailableError } from '../index.mjs';
import { aborted, aName, block, eventually, holdline, LONG, script, SOON, Stores } from './ground.mjs';

const stores = new Stores();
const clients = [];
after(async () => {
  for (const client of clients) await client.close(1000);
  await stores.stop();
});

async function clientOf(url) {
  const client = await connect(url);
  clients.push(client);
  return client;
}

/** Sends one command to Redis. */
async function redis(url, command) {
  const { hostname, port } = new URL(url);
  const socket = dial(Number(port), hostname);
  socket.write(`${command}\r\n`);
  for await (const reply of socket) {
    socket.destroy();
    return String(reply);
  }
}

test('renewals go on while the event loop is blocked', async () => {
  const client = await clientOf(await stores.url('redis'));
  const lock = await client.lock(aName(), { leaseDuration: 3000 });
  block(10_000);
  assert.equal(lock.isValid, true);
  assert.equal(lock.signal.aborted, false);
  assert.equal((await lock.release()).lost, null);
});

test('after a blocked event loop a lost lease is invalid at once', async () => {
  const client = await clientOf(await stores.url('redis'));
  const lock = await client.lock(aName(), { leaseDuration: 1000, keep: 'fixed' });
  const { signal, atRisk } = lock;
  const seen = [];
  signal.addEventListener('abort', () => seen.push('lost'));
  atRisk.addEventListener('abort', () => seen.push('at risk'));
  block(1500);
  assert.equal(lock.isValid, false);
  assert.equal(lock.remaining, 0);
  assert.equal(lock.signal.aborted, true, 'the getter looks');
  assert.ok(signal.reason instanceof LostError);
  await aborted(atRisk);
  assert.deepEqual(seen.sort(), ['at risk', 'lost']);
  assert.equal((await lock.release()).lost, signal.reason.reason);
});

test('a process that was stopped beyond its lease holds nothing when it goes on', async () => {
  const url = await stores.url('redis');
  const client = await clientOf(url);
  const name = aName();
  const { child, line, exited } = script(`
    const client = await connect(${JSON.stringify(url)});
    const lock = await client.lock('${name}', { leaseDuration: 2000 });
    const alive = setInterval(() => {}, 1000);
    process.once('SIGUSR2', () => {
      say(lock.isValid + ' ' + lock.signal.aborted);
      clearInterval(alive);
    });
    say('held');`);
  assert.equal(await line(), 'held');
  child.kill('SIGSTOP');
  const next = await client.lock(name, { wait: SOON });
  child.kill('SIGUSR2');
  child.kill('SIGCONT');
  assert.equal(await line(), 'false true');
  assert.equal(next.isValid, true);
  await next.release();
  assert.equal(await exited, 0);
});

test('a wall clock that is set changes no validity', async (context) => {
  const client = await clientOf(await stores.url('redis'));
  const lock = await client.lock(aName(), { leaseDuration: 1000, keep: 'fixed' });
  context.mock.method(Date, 'now', () => 0);
  block(1500);
  assert.equal(lock.isValid, false);
  await lock.release();
});

test('a store that forgets: the signal aborts, and the block rejects', async () => {
  const { urls } = await stores.mortal('redis');
  const client = await clientOf(urls[0]);
  const job = client.using(aName(), { leaseDuration: 2000 }, async (lock) => {
    await redis(urls[0], 'FLUSHALL');
    const reason = await aborted(lock.signal);
    assert.equal(reason.reason, 'missing');
    assert.equal(lock.isValid, false);
    return 'done';
  });
  const error = await job.catch((error) => error);
  assert.ok(error instanceof LostError, String(error));
  assert.equal(error.code, 'lost');
  assert.equal(error.reason, 'missing');
});

test('a server that ends: at risk first, then lost', { timeout: SOON * 2 }, async () => {
  const { urls, stop } = await stores.mortal('redis');
  const client = await clientOf(urls[0]);
  const lock = await client.lock(aName(), { leaseDuration: 6000 });
  const order = [];
  lock.atRisk.addEventListener('abort', () => order.push(['at risk', lock.isValid]));
  lock.signal.addEventListener('abort', () => order.push(['lost', lock.isValid]));
  await stop();
  const reason = await aborted(lock.signal);
  assert.equal(reason.reason, 'expired');
  assert.equal(order.length, 2);
  assert.equal(order[0][0], 'at risk');
  assert.deepEqual(order[1], ['lost', false]);
  assert.equal((await lock.release()).lost, 'expired');
});

test('a server that pauses: lost before it grants again, and requests are unknown', async () => {
  const { urls } = await stores.mortal('redis');
  const client = await connect(urls[0], { answerWithin: 500 });
  clients.push(client);
  const lock = await client.lock(aName(), { leaseDuration: 3000 });
  const { signal } = lock;
  await redis(urls[0], 'CLIENT PAUSE 8000 ALL');
  const other = aName();
  const error = await client.tryLock(other).catch((error) => error);
  assert.ok(error instanceof UnavailableError, String(error));
  assert.equal(error.certainty, 'unknown');
  const reason = await aborted(signal);
  assert.equal(reason.reason, 'expired');
  assert.equal(lock.isValid, false);
  const next = await client.lock(lock.name);
  assert.ok(next.fencingToken > lock.fencingToken);
  // What was asked and not answered is given up: the name is not taken by nobody.
  await (await client.lock(other, { wait: SOON })).release();
  await next.release();
});

test('a lease that is revoked is at risk, and still valid', async () => {
  const url = await stores.url('redis');
  const client = await clientOf(url);
  const lock = await client.lock(aName(), { leaseDuration: '30s' });
  const { atRisk } = lock;
  const token = ['--if-fencing-token', String(lock.fencingToken)];
  const revoke = holdline(url, 'revoke', lock.name, '--reason', 'roll back', ...token);
  const reason = await aborted(atRisk);
  assert.ok(reason instanceof LockError && !(reason instanceof LostError));
  assert.equal(reason.code, 'at_risk');
  assert.equal(reason.details.reason, 'revoked');
  assert.match(reason.message, /roll back/);
  assert.equal(lock.isValid, true);
  assert.equal(lock.signal.aborted, false);
  await lock.release();
  await revoke;
});

test('a grant that is given up in the turn in which it comes is given back', async () => {
  const url = await stores.url('redis');
  const client = await clientOf(url);
  const lock = await client.lock(aName(), { leaseDuration: 1000, keep: 'fixed' });
  const controller = new AbortController();
  lock.signal.addEventListener('abort', () => controller.abort(new Error('given up')));
  await redis(url, 'CLIENT PAUSE 2000 ALL');
  const other = aName();
  const waits = client.lock(other, { signal: controller.signal, leaseDuration: LONG });
  // The event loop finds both at once: first the loss, then the grant.
  block(4000);
  await assert.rejects(waits, /given up/);
  await (await client.lock(other, { wait: SOON })).release();
});

test('what was locked together is lost together', async () => {
  const { urls } = await stores.mortal('redis');
  const client = await clientOf(urls[0]);
  const locks = await client.lockAll([aName(), aName()], { leaseDuration: 2000 });
  const { signal } = locks;
  await redis(urls[0], 'FLUSHALL');
  await aborted(signal);
  assert.equal(locks.isValid, false);
  await assert.rejects(locks[Symbol.asyncDispose](), LostError);
});

test('a lease that another program released is lost', async () => {
  const client = await clientOf(await stores.url('redis'));
  const other = await clientOf(await stores.url('redis'));
  const first = await client.lock(aName(), { leaseDuration: LONG });
  const lease = await first.detach();
  const lock = await client.attach(lease);
  await other.release(lease);
  await assert.rejects(lock.renew(), LostError);
  await eventually(() => !lock.isValid);
  assert.equal((await lock.release()).lost, 'missing');
});
