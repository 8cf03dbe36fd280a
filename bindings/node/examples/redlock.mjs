// A program of npm's redlock 5; only the name of the module is another.

import Redis from 'ioredis';
import Redlock, { ExecutionError } from 'holdline/redlock';

const client = new Redis('redis://locks.example');
const redlock = new Redlock([client], { retryCount: 0 });
try {
  const lock = await redlock.acquire(['nightly-report'], 30_000);
  console.log('held, with a token:', lock.fencingToken > 0n);
  await lock.release();
} catch (error) {
  console.log(error instanceof ExecutionError ? 'busy' : error);
}
await redlock.quit();
// => held, with a token: true
