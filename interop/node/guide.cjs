// A program of npm's redlock 5, as docs/migrate/npm-redlock.md finds it, run by the interop tests.
// Usage: guide.cjs HOST PORT; NODE_PATH says where the libraries are installed.
'use strict';

const Redis = require('ioredis');
const { default: Redlock } = require('redlock5');

async function main(client) {
  const redlock = new Redlock([client], { retryCount: 0 });
  try {
    const lock = await redlock.acquire(['nightly-report'], 30_000);
    console.log('held');
    await lock.release();
  } catch (error) {
    console.log(error.name === 'ExecutionError' ? 'busy' : error);
  }
  client.disconnect();
}

main(new Redis(Number(process.argv[3]), process.argv[2]));
