// The programs of `examples`, which the book shows: each prints what its lines `// => …` say.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { servers } from './servers.mjs';

const home = fileURLToPath(new URL('..', import.meta.url));
const programs = (await readdir(path.join(home, 'examples'))).filter((name) => /\.[cm]js$/.test(name));
/** `await using` needs Node 24: they all run with that, and those without it with this one too. */
const newest = path.join(process.env.NODE_PATH, '.bin', 'node');
const SOON = 60_000;

let redis;
let postgres;
let place;
before(async () => {
  [redis, postgres] = await Promise.all([servers('redis'), servers('postgres')]);
  place = await mkdtemp(path.join(tmpdir(), 'holdline-examples-'));
  await mkdir(path.join(place, 'node_modules'));
  await symlink(home, path.join(place, 'node_modules', 'holdline'));
  // `import` does not look at NODE_PATH.
  for (const name of ['ioredis', 'pg']) {
    await symlink(path.join(process.env.NODE_PATH, name), path.join(place, 'node_modules', name));
  }
});
after(async () => {
  await Promise.all([redis?.stop(), postgres?.stop()]);
  if (place) await rm(place, { recursive: true });
});

async function runs(node, name) {
  const text = await readFile(path.join(home, 'examples', name), 'utf8');
  const program = text
    .replaceAll('redis://locks.example', redis.urls[0])
    .replaceAll('postgres://data.example/shop', postgres.urls[0]);
  const file = path.join(place, name);
  await writeFile(file, program);
  const { stdout } = await promisify(execFile)(node, [file], { cwd: place, timeout: SOON });
  const expected = [...text.matchAll(/^ *\/\/ => (.*)$/gm)].map(([, line]) => line);
  assert.deepEqual(stdout.trimEnd().split('\n'), expected);
}

for (const name of programs) {
  test(`${name} prints what it says`, () => runs(newest, name));
}

for (const name of ['using.cjs', 'workers.mjs', 'redlock.mjs']) {
  test(`${name} runs without \`await using\``, () => runs(process.execPath, name));
}
