'use strict';
// The client.

const os = require('node:os');
const { basename } = require('node:path');

const { classes, unlessFailed } = require('./errors.cjs');
const { native, eventLoop, request, Requests } = require('./loop.cjs');
const locks = require('./locks.cjs');

const { asyncDispose, OURS, answer, held, grantOf, releaseOf, takeBack } = locks;
const { Grant, Lock, Leadership, SlotLock, Locks } = locks;
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
function split(options) {
  if (options === undefined) return { signal: undefined, rest: undefined };
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
function wantedOf(name, options) {
  const names = [checkText('name', name)];
  if (options === undefined) return { kind: 'exclusive', names };
  const { shared = false, permits, count, ...rest } = options;
  if (typeof shared !== 'boolean') throw wrong('shared', 'a boolean', shared);
  if (permits === undefined && count !== undefined) {
    throw new TypeError('`count` is of a semaphore: set `permits` too');
  }
  if (permits === undefined) return { kind: shared ? 'shared' : 'exclusive', names, rest };
  if (shared) throw new TypeError('`shared` is of a lock without `permits`');
  checkNumber('permits', permits);
  const details = { permits, count: checkNumber('count', count ?? 1) };
  return { kind: 'permits', names, details, rest };
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
class Client {
  #native;
  #isOpen = true;
  #requests = new Requests();

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

  async #ask(start, signal) {
    return unlessFailed(await request(start, signal, this.#requests));
  }

  #data(start, signal) {
    return answer(start, signal, this.#requests);
  }

  /** Makes locks of what was granted. */
  #hold(Kind, granted) {
    const grants = granted.map((facts) => new Grant(this.#requests, facts));
    return this.#isOpen ? grants.map((grant) => new Kind(OURS, grant)) : this.#giveBack(grants);
  }

  /** `close` came between the answer and its caller, and has not seen what was granted. */
  async #giveBack(grants) {
    await Promise.all(grants.map((grant) => grant.release()));
    throw closed(this.engine);
  }

  async #acquire(Kind, { kind, names, details, rest }, signal, waits = true) {
    this.#check(signal);
    const start = () => this.#native.acquire(eventLoop, kind, names, details, rest, waits);
    const { grants } = unlessFailed(await request(start, signal, this.#requests));
    return this.#hold(Kind, grants);
  }

  #check(signal) {
    if (signal?.aborted) throw signal.reason;
    if (!this.#isOpen) throw closed(this.engine);
  }

  async lock(name, options) {
    const { signal, rest } = split(options);
    const [lock] = await this.#acquire(Lock, wantedOf(name, rest), signal);
    return lock;
  }

  async tryLock(name, options) {
    const { signal, rest } = split(options);
    const wanted = wantedOf(name, rest);
    try {
      const [lock] = await this.#acquire(Lock, wanted, signal, false);
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
    const wanted = { kind: 'any', names: checkNames(names), rest };
    const [lock] = await this.#acquire(Lock, wanted, signal);
    return lock;
  }

  async lockAll(names, options) {
    const { signal, rest } = split(options);
    const wanted = { kind: 'all', names: checkNames(names), rest };
    return new Locks(OURS, await this.#acquire(Lock, wanted, signal));
  }

  async elect(name, value = '', options = undefined) {
    const { signal, rest } = split(options);
    const names = [checkText('name', name)];
    const details = { value: checkText('value', value) };
    const wanted = { kind: 'leadership', names, details, rest };
    const [leadership] = await this.#acquire(Leadership, wanted, signal);
    return leadership;
  }

  async leader(name) {
    checkText('name', name);
    return leaderOf(await this.#data(() => this.#native.leader(eventLoop, name)));
  }

  async *leaders(name, options) {
    const { signal } = split(options);
    const leaders = this.#native.leaders(checkText('name', name));
    for (;;) {
      const leader = await this.#data(() => leaders.next(eventLoop), signal);
      if (leader === null) return;
      yield leaderOf(leader);
    }
  }

  async once(name, slot, job) {
    checkJob(job);
    const { signal, rest } = split(slot);
    checkText('name', name);
    this.#check(signal);
    const begun = await this.#ask(() => this.#native.begin(eventLoop, name, rest), signal);
    if (begun.grants === undefined) {
      const { why, by, since, clock_skew: clockSkew } = JSON.parse(begun.json);
      return { ran: false, why, by: { ...by, since: since && new Date(since), clockSkew } };
    }
    const [lock] = await this.#hold(SlotLock, begun.grants);
    const grant = grantOf(lock);
    grant.keep(lock);
    let value;
    try {
      value = await job(lock);
    } catch (error) {
      // The slot is given back, or kept, as the options say; the job's error is what counts.
      await grant.end('fail').catch(() => {});
      throw error;
    }
    try {
      await grant.end('finish');
    } catch (failure) {
      if (!(failure instanceof LockError)) throw failure;
      return { ran: true, value, failure };
    }
    return { ran: true, value, failure: null };
  }

  async attach(lease) {
    const text = textOf(lease);
    this.#check();
    const { grants } = await this.#ask(() => this.#native.attach(eventLoop, text));
    const [lock] = await this.#hold(Lock, grants);
    return lock;
  }

  async renew(lease, leaseDuration) {
    const text = textOf(lease);
    return this.#data(() => this.#native.renew(eventLoop, text, leaseDuration));
  }

  async release(lease) {
    const text = textOf(lease);
    const { released } = await this.#ask(() => this.#native.release(eventLoop, text));
    return releaseOf(released);
  }

  async inspect(name) {
    checkText('name', name);
    return this.#data(() => this.#native.inspect(eventLoop, name));
  }

  async *list(prefix = '') {
    checkText('prefix', prefix);
    let after;
    do {
      const page = await this.#data(() => this.#native.list(eventLoop, prefix, after, PAGE));
      yield* page.names;
      after = page.after ?? undefined;
    } while (after !== undefined);
  }

  async close(limit = 5000) {
    const { json } = unlessFailed(native.readTime(limit));
    const until = performance.now() + JSON.parse(json);
    this.#isOpen = false;
    const requests = this.#requests;
    requests.giveUp(closed(this.engine));
    const grants = [...held].filter((grant) => grant.requests === requests);
    await takeBack(grants, until, 'its client was closed');
    return this.#shutdown(Math.max(0, until - performance.now()));
  }

  #shutdown(limit) {
    return answer(() => this.#native.shutdown(eventLoop, limit));
  }

  async [asyncDispose]() {
    await this.close();
  }

  /** What goes on in the background would end with the process. */
  static finish(client) {
    if (!client.#requests.isUntidy) return;
    client.#requests.isUntidy = false;
    client.#isOpen = false;
    void client.#shutdown(LEAVE_WITHIN);
  }
}

const { finish } = Client;
delete Client.finish;

// The process has nothing left to do: it gives back what is held.
process.on('beforeExit', () => {
  if (held.size > 0) {
    const text = 'the process had nothing left to do';
    void takeBack([...held], performance.now() + LEAVE_WITHIN, text);
    return;
  }
  for (const weak of clients) {
    const client = weak.deref();
    if (client !== undefined) finish(client);
  }
});

function closed(engine) {
  return new CancelledError('the client is closed', { engine });
}

/** Runs a job under a lock, and releases it. The job's own error is what counts. */
async function run(lock, job) {
  grantOf(lock).keep(lock);
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
  const holder = [short(os.hostname(), 64), short(user(), 32), short(program, 64)];
  const at = url ?? urlOfEnvironment();
  const connected = request(() => native.connect(eventLoop, at, ...holder, rest), signal);
  const settled = unlessFailed(await connected);
  return new Client(OURS, settled.client);
}

module.exports = { Client, connect };
