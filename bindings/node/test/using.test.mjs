// `await using`, on the newer Node of the tests.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

test('await using releases, and reports a loss', async () => {
  const newest = path.join(process.env.NODE_PATH, '.bin', 'node');
  const program = fileURLToPath(new URL('using.mjs', import.meta.url));
  const { stdout } = await promisify(execFile)(newest, [program]);
  assert.equal(stdout, 'done\n');
});
