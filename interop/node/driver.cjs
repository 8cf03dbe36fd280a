// Drives one npm lock library by lines on standard input; the words: docs/contributing/interop-tests.md.
//
// Usage: driver.cjs PEER URL…, where PEER is redlock4, redlock5, redlock-universal or
// redis-semaphore; NODE_PATH says where they are installed. All but the last lock over several servers.
'use strict';

const net = require('node:net');
const path = require('node:path');
const readline = require('node:readline');
const Redis = require('ioredis');

/** How long a waiting peer pauses between two tries, in ms. */
const PAUSE = 10;
const FOR_EVER = 1_000_000;

/** npm's `redlock` 4: the key is the name as it is. */
class Redlock4 {
  static package = 'redlock4';

  constructor(clients) {
    const Redlock = require('redlock4');
    this.once = new Redlock(clients, { retryCount: 0 });
    this.patient = new Redlock(clients, { retryCount: FOR_EVER, retryDelay: PAUSE, retryJitter: PAUSE });
  }

  async acquire(name, milliseconds, wait) {
    const redlock = wait ? this.patient : this.once;
    const lock = await redlock.lock(name, milliseconds).catch((error) => busy(error, 'LockError'));
    return lock && held(lock, lock.value);
  }

  async extend(held, milliseconds) {
    held.lock = await held.lock.extend(milliseconds);
    return true;
  }

  async release(held) {
    await held.lock.unlock();
    return true;
  }

  isLost(error) {
    return error.name === 'LockError';
  }
}

/** npm's `redlock` 5: the key is the name as it is. */
class Redlock5 {
  static package = 'redlock5';

  constructor(clients) {
    const { default: Redlock } = require('redlock5');
    this.redlock = new Redlock(clients);
    // A server that does not answer is told by the outcome.
    this.redlock.on('error', () => {});
  }

  async acquire(name, milliseconds, wait) {
    for (;;) {
      // Its own retries keep the votes of a split for their whole lease, against themselves too; an
      // attempt that is over takes them back.
      const taking = this.redlock.acquire([name], milliseconds, { retryCount: 0 });
      const lock = await taking.catch((error) => busy(error, 'ExecutionError'));
      if (lock) return held(lock, lock.value);
      if (!wait) return lock;
      await pause();
    }
  }

  async extend(held, milliseconds) {
    held.lock = await held.lock.extend(milliseconds);
    return true;
  }

  async release(held) {
    await this.redlock.release(held.lock, { retryCount: 0 });
    return true;
  }

  isLost(error) {
    return error.name === 'ExecutionError';
  }
}

/** npm's `redlock-universal`: the key is the name as it is. */
class RedlockUniversal {
  static package = 'redlock-universal';

  constructor(clients) {
    const { IoredisAdapter } = require('redlock-universal');
    this.adapters = clients.map((client) => new IoredisAdapter(client));
  }

  lock(settings) {
    const { createLock, createRedlock } = require('redlock-universal');
    const { adapters } = this;
    if (adapters.length === 1) return createLock({ adapter: adapters[0], ...settings });
    return createRedlock({ adapters, ...settings });
  }

  async acquire(name, milliseconds, wait) {
    const retries = { retryAttempts: 0, retryDelay: PAUSE };
    const lock = this.lock({ key: name, ttl: milliseconds, ...retries });
    for (;;) {
      const taking = lock.acquire();
      const handle = await taking.catch((error) => busy(error, 'LockAcquisitionError'));
      if (handle) return held({ lock, handle }, handle.value);
      if (!wait) return null;
      await pause();
    }
  }

  async extend(held, milliseconds) {
    return held.lock.lock.extend(held.lock.handle, milliseconds);
  }

  async release(held) {
    return held.lock.lock.release(held.lock.handle);
  }

  isLost(error) {
    return error.name === 'LockExtensionError' || error.name === 'LockReleaseError';
  }
}

/** The mutex of npm's `redis-semaphore`: the key is `mutex:NAME`. */
class RedisSemaphore {
  static package = 'redis-semaphore';

  constructor([client]) {
    this.client = client;
  }

  mutex(name, milliseconds, more) {
    const { Mutex } = require('redis-semaphore');
    const lease = { lockTimeout: milliseconds, refreshInterval: 0 };
    return new Mutex(this.client, name, { ...lease, ...more });
  }

  async acquire(name, milliseconds, wait) {
    const patient = { acquireTimeout: FOR_EVER, retryInterval: PAUSE };
    const settings = wait ? patient : { acquireAttemptsLimit: 1 };
    const mutex = this.mutex(name, milliseconds, settings);
    if (!(await mutex.tryAcquire())) return null;
    return { ...held(mutex, mutex.identifier), name };
  }

  async extend(held, milliseconds) {
    const again = { identifier: held.lock.identifier, acquiredExternally: true };
    return this.mutex(held.name, milliseconds, again).tryAcquire();
  }

  /** It does not tell whether there was anything to release. */
  async release(held) {
    await held.lock.release();
    return undefined;
  }

  isLost() {
    return false;
  }
}

const PEERS = {
  redlock4: Redlock4,
  redlock5: Redlock5,
  'redlock-universal': RedlockUniversal,
  'redis-semaphore': RedisSemaphore,
};

function held(lock, value) {
  return { lock, value };
}

/** Busy is an error to these peers; any other error is one to us too. */
function busy(error, name) {
  if (error.name !== name) throw error;
  return null;
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve, PAUSE * (1 + Math.random())));
}

/** The connection of one contender to the observer, which counts who is inside. */
class Observer {
  static async connect(port) {
    const observer = new Observer();
    observer.socket = net.createConnection({ host: '127.0.0.1', port, noDelay: true });
    observer.lines = readline.createInterface({ input: observer.socket })[Symbol.asyncIterator]();
    return observer;
  }

  async tell(word) {
    this.socket.write(`${word}\n`);
    const { value } = await this.lines.next();
    if (value !== 'ok') throw new Error(`the observer answered ${value}`);
  }

  close() {
    this.socket.destroy();
  }
}

class Driver {
  constructor(peer, urls) {
    this.clients = urls.map((url) => new Redis(url, { maxRetriesPerRequest: 1 }));
    // A server that is down is told by what is asked of it.
    this.clients.forEach((client) => client.on('error', () => {}));
    this.peer = new PEERS[peer](this.clients);
    this.held = new Map();
  }

  async acquire([name, milliseconds], wait = false) {
    const held = await this.peer.acquire(name, Number(milliseconds), wait);
    if (!held) return 'busy';
    this.held.set(name, held);
    return `held ${Buffer.from(held.value).toString('hex')}`;
  }

  async wait(words) {
    return this.acquire(words, true);
  }

  async extend([name, milliseconds]) {
    return this.unlessLost(this.peer.extend(this.held.get(name), Number(milliseconds)), 'extended');
  }

  async release([name]) {
    const held = this.held.get(name);
    this.held.delete(name);
    return this.unlessLost(this.peer.release(held), 'released');
  }

  async unlessLost(act, word) {
    try {
      const done = await act;
      if (done === undefined) return 'done';
      return done ? word : 'lost';
    } catch (error) {
      if (this.peer.isLost(error)) return 'lost';
      throw error;
    }
  }

  async contend([name, milliseconds, contenders, rounds, port]) {
    const contender = async () => {
      const observer = await Observer.connect(Number(port));
      for (let round = 0; round < Number(rounds); round += 1) {
        const held = await this.peer.acquire(name, Number(milliseconds), true);
        if (!held) throw new Error('a wait without an end ended');
        await observer.tell('enter');
        await observer.tell('leave');
        await this.peer.release(held);
      }
      observer.close();
    };
    await Promise.all(Array.from({ length: Number(contenders) }, contender));
    return `done ${Number(contenders) * Number(rounds)}`;
  }
}

/** The version that is installed, which a peer may hide from `require`. */
function versionOf(name) {
  const manifest = path.join(process.env.NODE_PATH, name, 'package.json');
  return JSON.parse(require('node:fs').readFileSync(manifest, 'utf8')).version;
}

async function main() {
  const [peer, ...urls] = process.argv.slice(2);
  const driver = new Driver(peer, urls);
  console.log(`ready ${versionOf(PEERS[peer].package)}`);
  const verbs = ['acquire', 'wait', 'extend', 'release', 'contend'];
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(' ');
    if (verb === 'quit') break;
    try {
      console.log(verbs.includes(verb) ? await driver[verb](words) : `error no verb ${verb}`);
    } catch (error) {
      console.log(`error ${String(error.stack).replaceAll('\n', ' ')}`);
    }
  }
  driver.clients.forEach((client) => client.disconnect());
}

main();
