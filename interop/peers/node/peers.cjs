// Drives lock libraries of Node for `cargo xtask bench peers`, ours too; ../go/main.go has the protocol.
//
// Usage: peers.cjs SYSTEM CONTENDERS SERVER. NODE_PATH says where the peers are installed, and
// HOLDLINE_NODE where our package is.
'use strict';

const path = require('node:path');
const readline = require('node:readline');

/** The lease, in ms: nobody loses it here. */
const LEASE = 30_000;
/** How long a peer that polls pauses between two tries, in ms. */
const PAUSE = 10;

/** A system returns what waits for the lock of a name, which returns what releases it. */
const SYSTEMS = {
  holdline: {
    place: () => process.env.HOLDLINE_NODE,
    async open(url) {
      const { connect } = require(process.env.HOLDLINE_NODE);
      const client = await connect(url);
      return async (name) => {
        const lock = await client.lock(name);
        return () => lock.release();
      };
    },
  },
  redlock: {
    place: () => path.join(process.env.NODE_PATH, 'redlock5'),
    async open(url) {
      const { default: Redlock } = require('redlock5');
      // Without an end, and without a jitter, by which it would pause for longer.
      const settings = { retryCount: -1, retryDelay: PAUSE, retryJitter: 0 };
      const redlock = new Redlock([ioredis(url)], settings);
      return async (name) => {
        const lock = await redlock.acquire([name], LEASE);
        return () => lock.release();
      };
    },
  },
  'redis-semaphore': {
    place: () => path.join(process.env.NODE_PATH, 'redis-semaphore'),
    async open(url) {
      const { Mutex } = require('redis-semaphore');
      const client = ioredis(url);
      // Without its timer, which would renew the lease.
      const settings = { lockTimeout: LEASE, refreshInterval: 0, acquireTimeout: Infinity, retryInterval: PAUSE };
      return async (name) => {
        const mutex = new Mutex(client, name, settings);
        await mutex.acquire();
        return () => mutex.release();
      };
    },
  },
};

function ioredis(url) {
  const Redis = require('ioredis');
  return new Redis(url);
}

function now() {
  return process.hrtime.bigint();
}

async function contend(lock, number, name, end) {
  const turns = [];
  for (let asked = now(); asked < end; asked = now()) {
    const release = await lock(name);
    const granted = now();
    const releasing = now();
    await release();
    turns.push([number, asked, granted, releasing, now()]);
  }
  return turns;
}

async function run(lock, names, start, end) {
  await new Promise((resolve) => setTimeout(resolve, Number(start - now()) / 1e6));
  return (await Promise.all(names.map((name, number) => contend(lock, number, name, end)))).flat();
}

async function main() {
  const [word, contenders, url] = process.argv.slice(2);
  const system = SYSTEMS[word];
  if (!system) throw new Error(`no such system: ${word}`);
  const lock = await system.open(url);
  console.log(`ready ${require(path.join(system.place(), 'package.json')).version}`);
  let turns = [];
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, name, start, end, count] = line.split(' ');
    if (verb === 'report') {
      console.log([...turns.map((turn) => turn.join(' ')), 'done'].join('\n'));
      continue;
    }
    const one = (_, number) => (count ? `${name}/${number}` : name);
    turns = await run(lock, Array.from({ length: Number(count ?? contenders) }, one), BigInt(start), BigInt(end));
    console.log('ran');
  }
  process.exit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
