// What the tests share: stores by the names of engines, names of locks, and programs of our own.

import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { servers } from './servers.mjs';

/** How long what must happen may take on a slow machine: milliseconds. */
export const SOON = 60_000;
/** A lease that no test outlasts. */
export const LONG = '30m';

export const root = fileURLToPath(new URL('../../..', import.meta.url));
/** The package, as a program of its own imports it. */
export const packageFile = new URL('../index.mjs', import.meta.url).href;
const program = process.env.HOLDLINE_PROGRAM ?? join(root, 'target/debug/holdline');

/** Runs the command line. */
export async function holdline(url, ...words) {
  const { stdout } = await promisify(execFile)(program, ['--url', url, ...words]);
  return stdout;
}

/** The stores of one file of tests. */
export class Stores {
  #urls = new Map();
  #stops = [];

  /** The URL of an engine's store, which is started at its first use. */
  url(engine) {
    if (!this.#urls.has(engine)) this.#urls.set(engine, this.#start(engine));
    return this.#urls.get(engine);
  }

  async #start(engine) {
    if (engine === 'memory') return 'memory:tests';
    if (engine === 'local') {
      const directory = await mkdtemp(join(tmpdir(), 'holdline-node-'));
      this.#stops.push(() => rm(directory, { recursive: true }));
      return `local:${directory}`;
    }
    if (engine !== 'redlock') return (await this.mortal(engine)).urls[0];
    const { urls } = await this.mortal('redis', 3);
    const url = `redlock://${urls.map((one) => one.replace('redis://', '')).join(',')}`;
    await holdline(url, 'quorum', 'init');
    await holdline(url, 'quorum', 'vouch', '--yes');
    return url;
  }

  /** Servers of one test, which may stop them. */
  async mortal(kind, count = 1) {
    const { urls, stop } = await servers(kind, count);
    let ended;
    const once = () => (ended ??= stop());
    this.#stops.push(once);
    return { urls, stop: once };
  }

  async stop() {
    for (const stop of this.#stops.reverse()) await stop();
  }
}

let numbers = 0;

/** A lock name of one test alone. */
export function aName() {
  numbers += 1;
  return `node/${process.pid}/${numbers}`;
}

/** Waits until a condition holds. */
export async function eventually(condition) {
  const end = performance.now() + SOON;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error('it did not happen');
    await pause(10);
  }
}

/** Waits until a signal aborts, and returns its reason. A held lock keeps no event loop alive. */
export async function aborted(signal) {
  await eventually(() => signal.aborted);
  return signal.reason;
}

/** Keeps this process busy, so that its event loop stands still. */
export function block(millis) {
  const end = performance.now() + millis;
  while (performance.now() < end);
}

/** A Node process that runs a module of this text. `say` in it prints a line for us. */
export function script(text, { flags = [], env = {} } = {}) {
  const head =
    `import { connect } from ${JSON.stringify(packageFile)};\n` +
    "import { writeSync } from 'node:fs';\n" +
    "const say = (word) => writeSync(1, word + '\\n');\n";
  const words = [...flags, '--input-type=module', '--eval', head + text];
  const options = { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...env } };
  const child = spawn(process.execPath, words, options);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exited = new Promise((resolve) => {
    child.once('exit', (code, signal) => resolve(code ?? signal));
  });
  return { child, line: async () => (await lines.next()).value, exited };
}
