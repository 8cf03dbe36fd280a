// The types of the drop-in fit programs of both versions, in both kinds of modules.

import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const require = createRequire(import.meta.url);

for (const module of ['node16', 'nodenext']) {
  test(`tsc --strict accepts programs of redlock 4 and 5, by the rules of ${module}`, async () => {
    const programs = ['redlock4.cts', 'redlock5.cts', 'redlock5.mts'].map((name) => path.join('types', name));
    const roots = path.dirname(path.dirname(require.resolve('@types/node/package.json')));
    const words = ['--strict', '--noEmit', '--module', module, '--target', 'es2022'];
    const options = { cwd: fileURLToPath(new URL('.', import.meta.url)) };
    const tsc = [require.resolve('typescript/bin/tsc'), ...words, '--lib', 'es2023,esnext.disposable'];
    const run = [...tsc, '--typeRoots', roots, '--types', 'node', ...programs];
    await promisify(execFile)(process.execPath, run, options).catch((error) => {
      throw new Error(error.stdout);
    });
  });
}
