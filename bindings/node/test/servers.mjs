// Real servers for the tests, started by the repository's own `services`.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../..', import.meta.url));

/** Starts so many servers of a kind; `stop` ends them, and so does the end of this process. */
export async function servers(kind, count = 1) {
  const program = process.env.HOLDLINE_SERVICES;
  const [command, ...words] = program ? [program] : ['cargo', 'xtask', 'services'];
  const options = { cwd: root, stdio: ['pipe', 'pipe', 'inherit'] };
  const child = spawn(command, [...words, kind, '--count', String(count)], options);
  const ended = once(child, 'exit');
  const urls = [];
  for await (const line of createInterface({ input: child.stdout })) {
    urls.push(line.trim());
    if (urls.length === count) break;
  }
  if (urls.length < count) throw new Error(`\`services ${kind}\` started ${urls.length} of ${count}`);
  const stop = async () => {
    child.stdin.end();
    await ended;
  };
  return { urls, stop };
}
