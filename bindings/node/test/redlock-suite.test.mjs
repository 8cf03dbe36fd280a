// The suite of npm's redlock 4, with the original, and with the drop-in in its place.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';

import { runSuite } from './redlock4-suite.mjs';
import { servers } from './servers.mjs';

const require = createRequire(import.meta.url);
/** Its cases, once for each of its four groups of clients. */
const CASES = 4 * 56;
/** Its leases are short: what only a stall can spoil begins anew, a fault fails each time. */
const TRIES = 3;

const SINGLE = 'Redlock: single-server: https://www.npmjs.com/package';
const MULTI = 'Redlock: multi-server: https://www.npmjs.com/package';
const SCRIPTS = 'supports custom script functions in options';
// Holdline runs no scripts of others: a changed one may lock without what ours check.
const REFUSED = '`lockScript`: Holdline runs its own scripts. Leave it out';
/** The cases that cannot pass with the drop-in. One that starts to pass or to fail is noticed. */
const FAIL = {
  [`${SINGLE}/redis ${SCRIPTS}`]: REFUSED,
  [`${SINGLE}/redis (string_numbers=true) ${SCRIPTS}`]: REFUSED,
  [`${SINGLE}/ioredis ${SCRIPTS}`]: REFUSED,
  [`${MULTI}/ioredis ${SCRIPTS}`]: REFUSED,
  // One event for each look at the quorum, and not one for each of its three servers.
  [`${MULTI}/ioredis emits a clientError event when a client error occurs`]: 'expected 3 to equal 9',
};

/** One for the cases of one server, and three. */
let running;
before(async () => {
  running = await servers('redis', 4);
});
after(() => running?.stop());

/** Runs it, and again if a stall may have spoiled it. */
async function suite(module, expected) {
  for (let tries = 1; ; tries += 1) {
    const { passed, failed } = await runSuite(module, running.urls);
    try {
      assert.deepEqual(Object.fromEntries(failed), expected);
      assert.equal(passed.length + failed.size, CASES);
      return;
    } catch (error) {
      if (tries === TRIES) throw error;
    }
  }
}

test('the suite of redlock 4 passes with the original, so it runs as it should', async () => {
  await suite(require.resolve('redlock4'), {});
});

test('the suite of redlock 4 passes with the drop-in, but for the cases named here', async () => {
  await suite(require.resolve('../redlock.cjs'), FAIL);
});
