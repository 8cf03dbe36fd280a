'use strict';
// The client.

const os = require('node:os');
const { basename } = require('node:path');
const { setTimeout } = require('node:timers/promises');

const { classes, errorOf } = require('./errors.cjs');
const { native, request } = require('./loop.cjs');
const locks = require('./locks.cjs');

const { asyncDispose, OURS, answer, end, keep, Lock, Leadership, SlotLock, Locks } = locks;
const { BusyError, CancelledError, InvalidError, LockError } = classes;

/** How many names one page of `list` has. */
const PAGE = 100;
/** How long a process that ends waits for what it gave up: milliseconds. */
const LEAVE_WITHIN = 2000;

function typeName(value) {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  const name = typeof value;
  return name === 'undefined' ? name : `${name === 'object' ? 'an' : 'a'} ${name}`;
}

function wrong(field, wanted, value) {
  return new TypeError(`\`${field}\` is ${wanted}, not ${typeName(value)}`);
}

function checkText(field, value) {
  if (typeof value !== 'string') throw wrong(field, 'a string', value);
  return value;
}

function checkNumber(field, value) {
  if (typeof value !== 'number') throw wrong(field, 'a number', value);
  return value;
}

function checkNames(names) {
  if (!Array.isArray(names)) throw wrong('names', 'an array of strings', names);
  return names.map((name) => checkText('names', name));
}

function checkSignal(signal) {
  const is = typeof signal?.addEventListener === 'function' && typeof signal.aborted === 'boolean';
  if (signal !== undefined && !is) throw wrong('signal', 'an AbortSignal', signal);
}

function checkJob(job) {
  if (typeof job !== 'function') throw wrong('job', 'a function', job);
}

/** Takes the signal out of options; the others are the library's. */
function split(options = {}) {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw wrong('options', 'an object', options);
  }
  const { signal, ...rest } = options;
  checkSignal(signal);
  for (const key of Object.keys(rest)) {
    // The library spells its options with underscores, and this package does not.
    if (key.includes('_')) throw new TypeError(`there is no option \`${key}\``);
  }
  return { signal, rest };
}

/** What a lock is, by its options: exclusive, shared, or permits of a semaphore. */
function wantedOf(name, { shared = false, permits, count, ...rest }) {
  if (typeof shared !== 'boolean') throw wrong('shared', 'a boolean', shared);
  if (permits === undefined && count !== undefined) {
    throw new TypeError('`count` is of a semaphore: set `permits` too');
  }
  if (permits === undefined) return { wanted: wanted(shared ? 'shared' : 'exclusive', [name]), rest };
  if (shared) throw new TypeError('`shared` is of a lock without `permits`');
  const numbers = [checkNumber('permits', permits), checkNumber('count', count ?? 1)];
  return { wanted: wanted('permits', [name], '', ...numbers), rest };
}

function wanted(kind, names, value = '', permits = 1, count = 1) {
  return { kind, names, value, permits, count };
}

function short(text, bytes) {
  let cut = text.slice(0, bytes);
  while (Buffer.byteLength(cut) > bytes) cut = cut.slice(0, -1);
  return cut;
}

function user() {
  const { USER, LOGNAME } = process.env;
  if (USER || LOGNAME) return USER || LOGNAME;
  try {
    return os.userInfo().username;
  } catch {
    return `uid ${process.geteuid?.() ?? '?'}`;
  }
}

/** The URL if none is given: that of the environment, or `local:` unless a server is required. */
function urlOfEnvironment() {
  const { HOLDLINE_URL: url, HOLDLINE_REQUIRE_SERVER: required = '' } = process.env;
  const hasNoServer = url === undefined || /^(local|memory):/i.test(url);
  if (hasNoServer && !['', '0', 'false', 'no', 'off'].includes(required)) {
    const found = url === undefined ? 'is not set' : 'names no server';
    const message = `HOLDLINE_URL: ${found}, and HOLDLINE_REQUIRE_SERVER requires a server`;
    throw new InvalidError(message, { details: { field: 'HOLDLINE_URL' } });
  }
  return url ?? 'local:';
}

/** The clients of this event loop. */
const clients = new Set();
const forgotten = new FinalizationRegistry((weak) => clients.delete(weak));
/** Locks that became garbage: they were given back by the native module. */
const garbage = new FinalizationRegistry(({ forget, name }) => {
  forget();
  const message =
    `the lock ${JSON.stringify(name)} was given back, since nothing references it any more: ` +
    'keep the Lock as long as its work takes, and release it';
  process.emitWarning(message, 'HoldlineWarning');
});

class Client {
  #native;
  #isOpen = true;
  /** What gives up each request that waits. */
  #asking = new Set();
  /** What is held, each weakly. */
  #held = new Set();
  /** Whether something was given up, which goes on in the background. */
  #isUntidy = false;

  constructor(ours, raw) {
    if (ours !== OURS) throw new TypeError('a Client comes from `connect`');
    this.#native = raw;
    const weak = new WeakRef(this);
    clients.add(weak);
    forgotten.register(this, weak);
  }

  get engine() {
    return this.#native.engine;
  }

  async #ask(operation, signal) {
    const settled = await request(operation, signal, this.#asking).catch((reason) => {
      this.#isUntidy = true;
      throw reason;
    });
    if (settled.failure != null) throw errorOf(settled.failure);
    return settled;
  }

  /** As `#ask`, for what is held afterwards. */
  async #take(operation, signal) {
    const settled = await this.#ask(operation, signal);
    if (this.#isOpen || settled.grants == null) return settled;
    // `close` came between the answer and here, and has not seen it.
    await Promise.all(settled.grants.map((grant) => answer(grant.release())));
    throw closed(this.engine);
  }

  async #data(operation, signal) {
    return JSON.parse((await this.#ask(operation, signal)).json);
  }

  /** Makes a lock of a grant. */
  #hold(Kind, grant) {
    const token = {};
    const onEnd = () => {
      garbage.unregister(token);
      this.#held.delete(weak);
    };
    const lock = new Kind(OURS, grant, onEnd);
    const weak = new WeakRef(lock);
    this.#held.add(weak);
    const forget = () => {
      this.#held.delete(weak);
      this.#isUntidy = true;
    };
    garbage.register(lock, { forget, name: lock.name }, token);
    return lock;
  }

  async #acquire(Kind, wanted, options, signal, waits = true) {
    if (signal?.aborted) throw signal.reason;
    this.#check();
    const { grants } = await this.#take(this.#native.acquire(wanted, options, waits), signal);
    return grants.map((grant) => this.#hold(Kind, grant));
  }

  #check() {
    if (!this.#isOpen) throw closed(this.engine);
  }

  async lock(name, options) {
    const { signal, rest } = split(options);
    const asked = wantedOf(checkText('name', name), rest);
    const [lock] = await this.#acquire(Lock, asked.wanted, asked.rest, signal);
    return lock;
  }

  async tryLock(name, options) {
    const { signal, rest } = split(options);
    const asked = wantedOf(checkText('name', name), rest);
    try {
      const [lock] = await this.#acquire(Lock, asked.wanted, asked.rest, signal, false);
      return lock;
    } catch (error) {
      if (error instanceof BusyError && error !== signal?.reason) return null;
      throw error;
    }
  }

  async using(name, options, job) {
    if (job === undefined && typeof options === 'function') {
      job = options;
      options = undefined;
    }
    checkJob(job);
    const lock = await this.lock(name, options);
    return run(lock, job);
  }

  async lockAny(names, options) {
    const { signal, rest } = split(options);
    const [lock] = await this.#acquire(Lock, wanted('any', checkNames(names)), rest, signal);
    return lock;
  }

  async lockAll(names, options) {
    const { signal, rest } = split(options);
    const asked = wanted('all', checkNames(names));
    return new Locks(OURS, await this.#acquire(Lock, asked, rest, signal));
  }

  async elect(name, value = '', options = undefined) {
    const { signal, rest } = split(options);
    const names = [checkText('name', name)];
    const asked = wanted('leadership', names, checkText('value', value));
    const [leadership] = await this.#acquire(Leadership, asked, rest, signal);
    return leadership;
  }

  async leader(name) {
    return leaderOf(await this.#data(this.#native.leader(checkText('name', name))));
  }

  async *leaders(name, options) {
    const { signal } = split(options);
    const leaders = this.#native.leaders(checkText('name', name));
    for (;;) {
      const leader = await this.#data(leaders.next(), signal);
      if (leader === null) return;
      yield leaderOf(leader);
    }
  }

  async once(name, slot, job) {
    checkJob(job);
    const { signal, rest } = split(slot);
    if (signal?.aborted) throw signal.reason;
    this.#check();
    const begun = await this.#take(this.#native.begin(checkText('name', name), rest), signal);
    if (begun.grants == null) {
      const { why, by, since, clock_skew: clockSkew } = JSON.parse(begun.json);
      return { ran: false, why, by: { ...by, since: since && new Date(since), clockSkew } };
    }
    const lock = this.#hold(SlotLock, begun.grants[0]);
    keep(lock);
    let value;
    try {
      value = await job(lock);
    } catch (error) {
      // The slot is given back, or kept, as the options say; the job's error is what counts.
      await end(lock, 'fail').catch(() => {});
      throw error;
    }
    try {
      await end(lock, 'finish');
    } catch (failure) {
      if (!(failure instanceof LockError)) throw failure;
      return { ran: true, value, failure };
    }
    return { ran: true, value, failure: null };
  }

  async attach(lease) {
    this.#check();
    const { grants } = await this.#take(this.#native.attach(textOf(lease)));
    return this.#hold(Lock, grants[0]);
  }

  async renew(lease, leaseDuration) {
    return this.#data(this.#native.renew(textOf(lease), leaseDuration));
  }

  async release(lease) {
    const outcome = await this.#data(this.#native.release(textOf(lease)));
    return { ...outcome, lost: outcome.lost?.word ?? null };
  }

  async inspect(name) {
    return this.#data(this.#native.inspect(checkText('name', name)));
  }

  async *list(prefix = '') {
    checkText('prefix', prefix);
    let after;
    do {
      const page = await this.#data(this.#native.list(prefix, after, PAGE));
      yield* page.names;
      after = page.after ?? undefined;
    } while (after !== undefined);
  }

  async close(limit = 5000) {
    const { json, failure } = native.readTime(limit);
    if (failure != null) throw errorOf(failure);
    const until = performance.now() + JSON.parse(json);
    this.#isOpen = false;
    for (const giveUp of [...this.#asking]) giveUp(closed(this.engine));
    await this.#releaseAll(until);
    const left = Math.max(0, until - performance.now());
    return answer(this.#native.shutdown(left));
  }

  async #releaseAll(until) {
    const held = [...this.#held].map((weak) => weak.deref()).filter(Boolean);
    if (held.length === 0) return;
    const over = new AbortController();
    const limit = setTimeout(Math.max(0, until - performance.now()), null, { signal: over.signal });
    const released = Promise.allSettled(held.map((lock) => lock.release()));
    await Promise.race([released, limit.catch(() => {})]);
    over.abort();
  }

  async [asyncDispose]() {
    await this.close();
  }

  /** Gives back what is held when the process has nothing left to do. */
  static leave(client) {
    if (client.#held.size > 0) {
      void client.#releaseAll(performance.now() + LEAVE_WITHIN);
    } else if (client.#isUntidy) {
      // What goes on in the background would end with the process.
      client.#isUntidy = false;
      client.#isOpen = false;
      void answer(client.#native.shutdown(LEAVE_WITHIN));
    }
  }
}

const { leave } = Client;
delete Client.leave;

process.on('beforeExit', () => {
  for (const weak of clients) {
    const client = weak.deref();
    if (client !== undefined) leave(client);
  }
});

function closed(engine) {
  return new CancelledError('the client is closed', { engine });
}

/** Runs a job under a lock, and releases it. The job's own error is what counts. */
async function run(lock, job) {
  keep(lock);
  let value;
  try {
    value = await job(lock);
  } catch (error) {
    await lock[asyncDispose]().catch(() => {});
    throw error;
  }
  await lock[asyncDispose]();
  return value;
}

function textOf(lease) {
  if (typeof lease !== 'object' || lease === null) throw wrong('lease', 'an object', lease);
  return JSON.stringify(lease);
}

function leaderOf(leader) {
  if (leader === null) return null;
  const { term, since, ...rest } = leader;
  return { ...rest, term: BigInt(term), since: since === null ? null : new Date(since) };
}

async function connect(url, options) {
  const { signal, rest } = split(options);
  if (url !== undefined) checkText('url', url);
  if (signal?.aborted) throw signal.reason;
  const program = basename(process.argv[1] ?? '') || 'node';
  const holder = { host: short(os.hostname(), 64), user: short(user(), 32), program: short(program, 64) };
  const operation = native.connect(url ?? urlOfEnvironment(), holder, rest);
  const settled = await request(operation, signal);
  if (settled.failure != null) throw errorOf(settled.failure);
  return new Client(OURS, settled.client);
}

module.exports = { Client, connect };
