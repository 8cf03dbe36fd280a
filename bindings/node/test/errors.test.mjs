// What is refused, and what is certain after a failure.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, test } from 'node:test';

import * as holdline from '../index.mjs';
import { aName, SOON, Stores } from './ground.mjs';

const { connect, InvalidError, LockError, UnavailableError, UnsupportedError } = holdline;
const stores = new Stores();
let client;
after(async () => {
  await client?.close();
  await stores.stop();
});
const ready = async () => (client ??= await connect('memory:errors'));

test('ESM and CommonJS have the same names and classes', () => {
  const required = createRequire(import.meta.url)('../index.cjs');
  const { default: whole, ...named } = holdline;
  assert.equal(whole, required);
  assert.deepEqual({ ...named }, { ...required });
});

test('the stack of an error names who waits', async () => {
  await ready();
  const name = aName();
  const held = await client.lock(name);
  async function theCaller() {
    await client.lock(name, { wait: 10 });
  }
  await assert.rejects(theCaller(), (error) => error.stack.includes('theCaller'));
  await held.release();
});

test('values of a wrong type are a TypeError that names the field', async () => {
  await ready();
  const wrong = [
    [{ wait: true }, "`wait` is milliseconds, or a text such as '10s', not a boolean"],
    [{ leaseDuration: null }, "`leaseDuration` is milliseconds, or a text such as '10s', not null"],
    [{ maxHold: 10n }, "`maxHold` is milliseconds, or a text such as '10s', not a bigint"],
    [{ keep: 1 }, '`keep` is a string, not a number'],
    [{ fair: 'yes' }, '`fair` is a boolean, not a string'],
    [{ reason: () => '' }, '`reason` is a string, not a function'],
    [{ reason: Symbol('x') }, '`reason` is a string, not a symbol'],
    [{ labels: 'x' }, '`labels` is an object of strings, not a string'],
    [{ labels: { a: 1 } }, '`labels` is a string, not a number'],
    [{ labels: { a: { b: 'c' } } }, '`labels` is a string, not an object'],
    [{ shared: 1 }, '`shared` is a boolean, not a number'],
    [{ permits: '3' }, '`permits` is a number, not a string'],
    [{ permits: 3, count: 1n }, '`count` is a number, not a bigint'],
    [{ count: 1 }, '`count` is of a semaphore: set `permits` too'],
    [{ signal: 5 }, '`signal` is an AbortSignal, not a number'],
    [{ leaseTime: 5 }, 'there is no option `leaseTime`'],
    [{ lease_duration: 5 }, 'there is no option `lease_duration`'],
    [[], '`options` is an object, not an array'],
    ['10s', '`options` is an object, not a string'],
  ];
  for (const [options, message] of wrong) {
    await assert.rejects(client.lock(aName(), options), { name: 'TypeError', message });
    await assert.rejects(client.tryLock(aName(), options), { name: 'TypeError', message });
  }
  const calls = [
    [() => client.lock(5), '`name` is a string, not a number'],
    [() => client.lock(), '`name` is a string, not undefined'],
    [() => client.lockAll('a'), '`names` is an array of strings, not a string'],
    [() => client.lockAny([null]), '`names` is a string, not null'],
    [() => client.lockAny(['a'], { shared: true }), 'there is no option `shared`'],
    [() => client.elect('a', 5), '`value` is a string, not a number'],
    [() => client.using('a'), '`job` is a function, not undefined'],
    [() => client.once('a', { every: '1d' }), '`job` is a function, not undefined'],
    [() => client.once('a', { every: false }, () => 0), /^`every` is milliseconds/],
    [() => client.close(null), /^`limit` is milliseconds/],
    [() => client.attach('{}'), '`lease` is an object, not a string'],
    [() => connect(5), '`url` is a string, not a number'],
    [() => connect('memory:', { lease: 5 }), 'there is no option `lease`'],
    [() => connect('memory:', { answerWithin: {} }), /^`answerWithin` is milliseconds/],
    [() => connect('memory:', { signal: 'x' }), '`signal` is an AbortSignal, not a string'],
    [() => new Promise((resolve) => resolve(new holdline.Lock())), 'a Lock comes from a Client'],
  ];
  for (const [call, message] of calls) {
    await assert.rejects(call, { name: 'TypeError', message });
  }
});

test('wrong values are an InvalidError that names the field', async () => {
  await ready();
  const wrong = [
    [{ leaseDuration: -1 }, 'leaseDuration'],
    [{ leaseDuration: NaN }, 'leaseDuration'],
    [{ leaseDuration: Infinity }, 'leaseDuration'],
    [{ leaseDuration: 0 }, 'leaseDuration'],
    [{ leaseDuration: '10 lightyears' }, 'leaseDuration'],
    [{ leaseDuration: '1e999s' }, 'leaseDuration'],
    [{ wait: '10' }, 'wait'],
    [{ keep: 'forever' }, 'keep'],
    [{ permits: 1.5 }, 'permits'],
    [{ permits: -1 }, 'permits'],
    [{ permits: 2 ** 32 }, 'permits'],
    [{ permits: 1, count: 2 }, 'permits'],
    [{ permits: 1, count: 0.5 }, 'count'],
  ];
  for (const [options, field] of wrong) {
    const error = await client.lock(aName(), options).catch((error) => error);
    assert.ok(error instanceof InvalidError, String(error));
    assert.equal(error.details.field, field, error.message);
    assert.ok(error.message.includes(field), error.message);
    assert.equal(error.certainty, 'not_applied');
  }
  await assert.rejects(client.lock(''), { name: 'InvalidError' });
  await assert.rejects(client.attach({ name: 'x' }), { details: { field: 'lease' } });
  await assert.rejects(connect('nowhere://x'), InvalidError);
});

test('an error has a class, a code, and a trace that leads to the call', async () => {
  await ready();
  async function theCallOfAProgram() {
    await client.lock('', {});
  }
  const error = await theCallOfAProgram().catch((error) => error);
  assert.ok(error instanceof LockError && error instanceof Error);
  assert.equal(error.code, 'invalid');
  assert.match(error.stack, /theCallOfAProgram/);
});

test('what an engine cannot do is an UnsupportedError', async () => {
  await ready();
  await assert.rejects(client.lock(aName(), { keep: 'live' }), UnsupportedError);
});

test('a store that is away is an error, and no null', { timeout: SOON * 2 }, async () => {
  const { urls, stop } = await stores.mortal('redis');
  const away = await connect(urls[0], { answerWithin: 500 });
  await (await away.lock(aName())).release();
  await stop();
  const error = await away.tryLock(aName()).catch((error) => error);
  assert.ok(error instanceof UnavailableError, String(error));
  assert.ok(['not_applied', 'unknown'].includes(error.certainty));
  const waiting = away.lock(aName(), { failInOutage: true });
  await assert.rejects(waiting, UnavailableError);
  await away.close(0);
});

test('a connection that is given up rejects with the reason', { timeout: SOON }, async () => {
  const reason = new Error('as planned');
  const abort = new AbortController();
  // No server answers there.
  const connecting = connect('redis://192.0.2.1:6379', { signal: abort.signal });
  abort.abort(reason);
  await assert.rejects(connecting, reason);
  await assert.rejects(connect('memory:', { signal: AbortSignal.abort(reason) }), reason);
});
