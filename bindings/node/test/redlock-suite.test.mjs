// The suite of npm's redlock 4, with the original, and with the drop-in in its place.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';

import { runSuite } from './redlock4-suite.mjs';
import { servers } from './servers.mjs';

const require = createRequire(import.meta.url);
/** Its cases, once for each of its four groups of clients. */
const CASES = 4 * 56;

/** One for the cases of one server, and three. */
let running;
before(async () => {
  running = await servers('redis', 4);
});
after(() => running?.stop());

test('the suite of redlock 4 passes with the original, so it runs as it should', async () => {
  const { passed, failed } = await runSuite(require.resolve('redlock4'), running.urls);
  assert.deepEqual([...failed], []);
  assert.equal(passed.length, CASES);
});
