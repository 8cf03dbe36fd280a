// Signals both ways: one that gives up the wait, and those of the lock.

import { setTimeout } from 'node:timers/promises';
import { connect } from 'holdline';

const client = await connect('redis://locks.example');
await using lock = await client.lock('nightly-report');

// Another part of the program gives up after 50 ms.
const waiting = client.lock('nightly-report', { signal: AbortSignal.timeout(50) });
console.log(await waiting.catch((error) => error.name));
// => TimeoutError

for (const page of ['sales', 'stock']) {
  if (lock.atRisk.aborted) break; // revoked, or renewals fail: there is time to stop
  await write(page, lock.signal);
}

async function write(page, signal) {
  signal.throwIfAborted(); // with a LostError
  await setTimeout(10, undefined, { signal }); // or fetch(url, { signal })
  console.log('wrote', page);
}
// => wrote sales
// => wrote stock
