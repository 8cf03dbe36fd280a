// Runs the suite that npm's redlock 4.2.0 publishes, unchanged, with a module in place of its own.
//
// Redlock 5 publishes no tests: its package has `dist` only.
//
// The suite connects to the default port, and makes several servers of the databases 1, 2 and 3 of
// one. Here both clients are wrapped: without a port, database n is server n. So the last group runs
// on three independent servers, as it should, and not on one.

import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';

const require = createRequire(import.meta.url);

/** How long one case may take on a slow machine. */
const CASE = 60_000;
/** The file of an installed package. */
const fileOf = (name) => require.resolve(name);

const WRAPPED = {
  redis: (urls) => `
    const { createClient } = require(${JSON.stringify(fileOf('redis3'))});
    exports.createClient = (options) => createClient({ url: ${JSON.stringify(urls[0])}, ...options });
  `,
  ioredis: (urls) => `
    const Redis = require(${JSON.stringify(fileOf('ioredis'))});
    const urls = ${JSON.stringify(urls)};
    module.exports = class extends Redis {
      constructor(options = {}) {
        super(urls[options.db ?? 0]);
      }
    };
  `,
};

/** Returns the titles of the cases that passed and of those that failed, with the reasons. */
export async function runSuite(module, urls) {
  const place = await mkdtemp(path.join(tmpdir(), 'holdline-redlock4-'));
  try {
    await copyFile(fileOf('redlock4').replace(/redlock\.js$/, 'test.js'), path.join(place, 'test.js'));
    await writeFile(path.join(place, 'redlock.js'), `module.exports = require(${JSON.stringify(module)});`);
    for (const [name, text] of Object.entries(WRAPPED)) {
      const directory = path.join(place, 'node_modules', name);
      await mkdir(directory, { recursive: true });
      await writeFile(path.join(directory, 'index.js'), text(urls));
    }
    return await mocha(place);
  } finally {
    await rm(place, { recursive: true });
  }
}

/** Runs until the process ends by itself: what keeps it alive is a fault too. */
async function mocha(place) {
  const words = [fileOf('mocha/bin/mocha.js'), '--reporter', 'json', '--timeout', String(CASE), 'test.js'];
  const { error, stdout, stderr } = await new Promise((resolve) => {
    const options = { cwd: place, timeout: 10 * CASE, maxBuffer: 1 << 26 };
    execFile(process.execPath, words, options, (...ended) => {
      resolve({ error: ended[0], stdout: ended[1], stderr: ended[2] });
    });
  });
  if (error?.killed) throw new Error(`the suite did not end: ${stdout} ${stderr}`);
  const start = stdout.indexOf('{\n  "stats"');
  if (start < 0) throw new Error(`the suite did not run: ${stdout} ${stderr}`);
  const report = JSON.parse(stdout.slice(start));
  if (report.pending.length > 0) throw new Error(`skipped: ${report.pending.map((one) => one.fullTitle)}`);
  const failed = report.failures.map((one) => [one.fullTitle, one.err.message]);
  return { passed: report.passes.map((one) => one.fullTitle), failed: new Map(failed) };
}
