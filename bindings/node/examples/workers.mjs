// Each worker thread has a client of its own.

import { isMainThread, Worker } from 'node:worker_threads';
import { connect } from 'holdline';

if (isMainThread) {
  const workers = Array.from({ length: 4 }, () => new Worker(new URL(import.meta.url)));
  const ends = workers.map((worker) => new Promise((resolve) => worker.once('exit', resolve)));
  console.log((await Promise.all(ends)).join(' '));
} else {
  const client = await connect('redis://locks.example');
  await client.using('nightly-report', () => console.log('one of us'));
}
// => one of us
// => one of us
// => one of us
// => one of us
// => 0 0 0 0
