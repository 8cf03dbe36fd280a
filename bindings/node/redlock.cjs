// npm's `redlock` 4 and 5, held by Holdline: change the name of the module and keep the calls.
//
//     const Redlock = require('holdline/redlock');      // for 4: require('redlock')
//     import Redlock from 'holdline/redlock';           // for 5: from 'redlock'
//
// It locks the same keys of the servers to which the given clients of ioredis or node-redis lead, by
// connections of its own. So programs with npm's redlock exclude it, and it them. What differs:
//
// - It does not poll a fixed number of times: it looks once, and then waits for `retryCount` times
//   `retryDelay` at most (for ever with -1). Within that time Holdline chooses its own pauses, so
//   `retryJitter` has no effect. `attempts` is 1 if the first look succeeded; otherwise it says how
//   many looks redlock would have needed in that time.
// - Events come once for each look, not for each server: `error` (5) for all, `clientError` (4) for
//   all but a busy lock.
// - `using` renews at a third of the lease. `automaticExtensionThreshold` is only checked.
// - `extend` never shortens a lease, and returns the same lock.
// - A release or an extension of a lost lock fails at once, and is not tried again.
// - A duration is from 50 ms to 24 h; `driftFactor` only shortens `expiration`.
// - Several resources are locked one after the other, in byte order. All or none is returned.
// - `value` is the lease id. Over several servers and on a cluster it is the value of the keys; else
//   that begins with it.
// - Over several servers and on a cluster, `quit` and the end of the process release the lock; else
//   it stays until its expiry, as with redlock. No two of the clients may lead to one server.
// - A `Lock` cannot be made anew from its `value`, as in another process.
// - Scripts of the caller's own are refused.
// - Behind Sentinels a lease is 60 s at most, and after a promotion nothing is granted for a while.
// - `fencingToken` is new, with one server or Sentinels: the number to hand to the resource.
//
// A URL of Holdline may stand in place of the clients, for what they cannot tell: authorities of TLS,
// the password of Sentinels, or the tokens of `redlock://`. `lock`, `lockWithOptions`, `disposer`, a callback and a resource
// that is a string mean version 4: `attempts` is a number, the error is a `LockError`, the promise is
// bluebird's if that is installed. All else means version 5.
'use strict';

const { EventEmitter } = require('node:events');
const holdline = require('holdline');
const { urlOf } = require('./redlock-url.cjs');

const DEFAULTS = Object.freeze({
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
});
const HOLDING = Symbol('holding');
const STYLE = Symbol('style');

/** An acquisition, extension or release failed; `cause` is the error of Holdline. */
class LockError extends Error {
  constructor(message = 'Failed to lock the resource.', attempts = undefined, cause = undefined) {
    super(message, cause && { cause });
    this.name = 'LockError';
    this.attempts = attempts;
  }
}

/** The same, in version 5. */
class ExecutionError extends LockError {
  constructor(message, attempts, cause) {
    super(message, attempts, cause);
    this.name = 'ExecutionError';
  }
}

/** Somebody else holds a resource. */
class ResourceLockedError extends Error {
  constructor(message, cause) {
    super(message, cause && { cause });
    this.name = 'ResourceLockedError';
  }
}

/** What the two versions do differently. */
const VERSION_4 = {
  attempts: (redlock, count) => count,
  failed: (resources, message, attempts, cause) => new LockError(message, attempts, cause),
  returns(promise, callback) {
    const bluebird = bluebirdIfInstalled();
    const returned = bluebird ? bluebird.resolve(promise) : promise;
    if (typeof callback === 'function') {
      const call = (...words) => process.nextTick(callback, ...words);
      returned.then((value) => (value === undefined ? call(null) : call(null, value)), call);
    }
    return returned;
  },
};
const VERSION_5 = {
  /** Single votes are not known: all clients voted alike. */
  attempts(redlock, count, error) {
    const membershipSize = redlock.clients.size;
    const quorumSize = Math.floor(membershipSize / 2) + 1;
    const stats = (won) => ({
      membershipSize,
      quorumSize,
      votesFor: new Set(won ? redlock.clients : []),
      votesAgainst: new Map(won ? [] : [...redlock.clients].map((client) => [client, error])),
    });
    const won = (number) => !error && number === count - 1;
    return Array.from({ length: count }, (_, number) => Promise.resolve(stats(won(number))));
  },
  failed: (resources, message, attempts, cause) => new ExecutionError(message, attempts, cause),
  returns: (promise) => promise,
};

function bluebirdIfInstalled() {
  try {
    return require('bluebird');
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') return null;
    throw error;
  }
}

/** Locks of this process end with the last reference to them. What only waits for one is none. */
const kept = new Set();

/** What one acquisition holds: leases as plain data, or locks of this process. */
class Holding {
  constructor(client, locks, leases) {
    this.client = client;
    this.locks = locks;
    this.leases = leases;
  }

  keepUntil(expiration) {
    if (this.leases) return;
    clearTimeout(this.timer);
    kept.add(this);
    this.timer = setTimeout(() => kept.delete(this), expiration - Date.now());
    this.timer.unref();
  }

  /** The id of the first lease. */
  get value() {
    return this.leases?.[0].lease_id ?? this.locks[0].leaseId;
  }

  isOf(resources) {
    const names = namesOf(resources);
    return names.length === this.locks.length && this.locks.every((lock) => names.includes(lock.name));
  }

  async renew(duration) {
    const { client, leases, locks } = this;
    await Promise.all(leases?.map((lease) => client.renew(lease, duration)) ?? locks.map((lock) => lock.renew(duration)));
  }

  async release() {
    if (!this.leases) {
      // Locks of this process would report the same outcome again.
      if (this.isReleased) return [{ confirmed: false, lost: 'released' }];
      this.isReleased = true;
      kept.delete(this);
      return Promise.all(this.locks.map((lock) => lock.release()));
    }
    return Promise.all(this.leases.map((lease) => this.client.release(lease)));
  }
}

/** What is held. */
class Lock {
  constructor(redlock, resource, value, expiration, attempts, attemptsRemaining) {
    this.redlock = redlock;
    this.resource = resource;
    this.value = value;
    this.expiration = expiration;
    this.attempts = attempts;
    this.attemptsRemaining = attemptsRemaining;
  }

  get resources() {
    return this.resource;
  }

  /** The number to hand to the resource, which rejects smaller ones; of the first resource. */
  get fencingToken() {
    return this.fencingTokens?.[0];
  }

  /** In the order of the resources; undefined over several servers and on a cluster, which give none. */
  get fencingTokens() {
    const holding = this[HOLDING];
    if (!holding?.leases) return undefined;
    const token = (name) => holding.locks.find((lock) => lock.name === name)?.fencingToken;
    return namesOf(this.resource).map(token);
  }

  unlock(callback) {
    return this.redlock.unlock(this, callback);
  }

  release() {
    return this.redlock.release(this);
  }

  extend(duration, callback) {
    return this.redlock.extend(this, duration, callback);
  }
}

/** The connections of Holdline, by what they belong to: a client, or a `Redlock` with a URL. */
const connections = new WeakMap();

/** See the head of this file for what differs from npm's. */
class Redlock extends EventEmitter {
  static Lock = Lock;
  static LockError = LockError;
  static ExecutionError = ExecutionError;
  static ResourceLockedError = ResourceLockedError;
  static Redlock = Redlock;
  static default = Redlock;

  #url;
  #owner;

  constructor(clients, settings = {}, scripts = {}) {
    super();
    // A failed look is no reason to end the process: the outcome reports it.
    this.on('error', () => {});
    const given = typeof clients === 'string' ? [clients] : [...clients];
    if (given.length === 0) throw new Error('Redlock must be instantiated with at least one redis client.');
    refuseScripts({ ...settings, ...scripts });
    this.#url = urlOf(given);
    this.#owner = typeof given[0] === 'string' ? this : given[0];
    this.servers = given;
    this.clients = new Set(given);
    this.settings = { ...DEFAULTS };
    for (const name of Object.keys(DEFAULTS)) {
      if (typeof settings[name] === 'number') this.settings[name] = settings[name];
    }
  }

  /** Acquires all resources for a duration in milliseconds. */
  acquire(resources, duration, settings, callback) {
    if (typeof settings === 'function') return this.lockWithOptions(resources, duration, {}, settings);
    if (typeof resources === 'string') return this.lockWithOptions(resources, duration, settings, callback);
    return this.#acquire(resources, duration, settings, VERSION_5);
  }

  lock(resource, ttl, callback) {
    return this.lockWithOptions(resource, ttl, {}, callback);
  }

  lockWithOptions(resource, ttl, settings, callback) {
    return VERSION_4.returns(this.#acquire(resource, ttl, settings, VERSION_4), callback);
  }

  acquireWithOptions(resource, ttl, settings, callback) {
    return this.lockWithOptions(resource, ttl, settings, callback);
  }

  /** Version 4 and older. Its second parameter was the value of a lock to extend. */
  _lock(resource, value, ttl, settings, callback) {
    if (value !== null) throw new TypeError('`_lock` extends nothing here: use `lock.extend(ttl)`');
    if (typeof settings === 'function') return this.lockWithOptions(resource, ttl, {}, settings);
    return this.lockWithOptions(resource, ttl, settings, callback);
  }

  /** For `using` of bluebird. */
  disposer(resource, ttl, errorHandler = () => {}) {
    if (!bluebirdIfInstalled()) {
      throw new TypeError('`disposer` needs the package bluebird: npm install bluebird');
    }
    return this.lock(resource, ttl).disposer((lock) => lock.unlock().catch(errorHandler));
  }

  /** Releases; fails if it was lost, or if the servers did not confirm. */
  release(lock, settingsOrCallback) {
    if (typeof settingsOrCallback === 'function') return this.unlock(lock, settingsOrCallback);
    return this.#release(lock, VERSION_5);
  }

  unlock(lock, callback) {
    return VERSION_4.returns(this.#release(lock, VERSION_4).then(() => undefined), callback);
  }

  /** Extends the lease to this duration from now, or to what is left of it if that is longer. */
  extend(lock, duration, settingsOrCallback) {
    const style = lock[STYLE] ?? VERSION_5;
    const callback = typeof settingsOrCallback === 'function' ? settingsOrCallback : undefined;
    return style.returns(this.#extend(lock, duration, callback ? {} : settingsOrCallback, style), callback);
  }

  /** Runs a routine under a lease that is renewed; its signal aborts when the lease is lost. */
  async using(resources, duration, settingsOrRoutine, optionalRoutine) {
    const routine = optionalRoutine ?? settingsOrRoutine;
    if (typeof routine !== 'function') throw new Error('INVARIANT: routine is not a function.');
    const settings = typeof settingsOrRoutine === 'function' ? {} : settingsOrRoutine;
    checkDuration(duration);
    if ({ ...this.settings, ...settings }.automaticExtensionThreshold > duration - 100) {
      const says = 'A lock `duration` must be at least 100ms greater than the';
      throw new Error(`${says} \`automaticExtensionThreshold\` setting.`);
    }
    const take = (client, wait) => locksOf(client, namesOf(resources), { wait, leaseDuration: duration });
    const { taken: locks } = await this.#within(settings, resources, VERSION_5, take);
    kept.add(locks);
    const controller = new AbortController();
    const lose = (cause) => {
      const says = 'The lock was lost while the routine ran.';
      controller.signal.error ??= VERSION_5.failed(resources, says, [], cause);
      controller.abort(controller.signal.error);
    };
    for (const { signal } of locks) {
      if (signal.aborted) lose(signal.reason);
      else signal.addEventListener('abort', () => lose(signal.reason), { once: true });
    }
    try {
      return await routine(controller.signal);
    } finally {
      const released = await Promise.all(locks.map((lock) => lock.release()));
      kept.delete(locks);
      failUnlessReleased(released, resources, VERSION_5, this);
    }
  }

  /** Closes Holdline's connection, and quits the clients. */
  async #quit() {
    const open = connections.get(this.#owner)?.get(this.#url);
    connections.get(this.#owner)?.delete(this.#url);
    const client = await open?.catch(() => undefined);
    await client?.close();
    return Promise.all(this.servers.map((one) => (typeof one === 'string' ? 'OK' : one.quit())));
  }

  quit(callback) {
    return VERSION_4.returns(this.#quit(), callback);
  }

  async #client() {
    if (!connections.has(this.#owner)) connections.set(this.#owner, new Map());
    const open = connections.get(this.#owner);
    if (!open.has(this.#url)) open.set(this.#url, holdline.connect(this.#url));
    const connecting = open.get(this.#url);
    try {
      return await connecting;
    } catch (error) {
      if (open.get(this.#url) === connecting) open.delete(this.#url);
      throw error;
    }
  }

  async #acquire(resource, duration, settings, style) {
    checkDuration(duration);
    const names = namesOf(resource);
    const take = (client, wait) => this.#take(client, names, duration, wait);
    const { taken, attempts, retryCount } = await this.#within(settings, resource, style, take);
    const value = taken.holding.value;
    const expiration = taken.until - this.#drift(duration, settings);
    const looks = style.attempts(this, attempts);
    const resources = Array.isArray(resource) ? resource : [resource];
    const lock = new Lock(this, resources, value, expiration, looks, retryCount - attempts);
    lock[HOLDING] = taken.holding;
    lock[STYLE] = style;
    taken.holding.keepUntil(expiration);
    return lock;
  }

  /** Takes all names, and returns the time until which the servers keep them at least. */
  async #take(client, names, duration, wait) {
    const isData = !/[?&]fencing=off(&|$)/.test(this.#url);
    const many = names.length > 1;
    // Of many, the first ones are renewed while it waits for the others.
    const keep = isData ? (many ? 'renewed' : 'detached') : 'fixed';
    const began = Date.now();
    const locks = await locksOf(client, names, { wait, leaseDuration: duration, keep });
    try {
      const granted = Date.now();
      const first = Math.max(began, granted - duration + locks[0].remaining);
      const leases = isData ? await Promise.all(locks.map((lock) => lock.detach())) : undefined;
      const holding = new Holding(client, locks.map(labelOf), leases);
      if (!isData) holding.locks = locks;
      if (many && !isData) await holding.renew(duration);
      return { holding, until: (many ? granted : first) + duration };
    } catch (error) {
      await Promise.allSettled(locks.map((lock) => lock.release()));
      throw error;
    }
  }

  /** Looks once, and then waits as long as redlock would have retried. */
  async #within(settings, resource, style, take) {
    const { retryCount, retryDelay } = { ...this.settings, ...settings };
    const began = performance.now();
    const end = retryCount < 0 ? Infinity : began + retryCount * retryDelay;
    for (let looks = 1; ; looks += 1) {
      const left = Math.max(0, end - performance.now());
      const wait = looks === 1 ? 0 : left === Infinity ? undefined : Math.ceil(left);
      try {
        const taken = await take(await this.#client(), wait);
        return { taken, attempts: this.#looksIn(began, looks, retryCount, retryDelay), retryCount };
      } catch (error) {
        const reported = this.#report(error);
        const isLast = performance.now() >= end || (retryCount >= 0 && looks > retryCount);
        if (isLast || !mayPass(error)) {
          const says = mayPass(error)
            ? `Exceeded ${retryCount} attempts to lock the resource "${resource}".`
            : `Unable to lock the resource "${resource}": ${error.message}`;
          const attempts = mayPass(error) ? retryCount + 1 : looks;
          throw style.failed(resource, says, style.attempts(this, attempts, reported), error);
        }
        if (!isBusy(error)) await pause(Math.min(retryDelay, end - performance.now()));
      }
    }
  }

  /** How many looks redlock would have needed. */
  #looksIn(began, looks, retryCount, retryDelay) {
    if (looks === 1) return 1;
    const more = Math.max(1, Math.ceil((performance.now() - began) / Math.max(1, retryDelay)));
    return 1 + (retryCount < 0 ? more : Math.min(more, retryCount));
  }

  #drift(duration, settings) {
    return Math.round((settings?.driftFactor ?? this.settings.driftFactor) * duration) + 2;
  }

  async #release(lock, style) {
    lock.expiration = 0;
    const holding = lock[HOLDING];
    if (!holding?.isOf(lock.resource)) {
      const cause = new TypeError('the lock does not hold this resource');
      throw notReleased(lock.resource, style, this, cause);
    }
    const released = await holding.release();
    failUnlessReleased(released, lock.resource, style, this);
    return { attempts: VERSION_5.attempts(this, 1) };
  }

  async #extend(lock, duration, settings, style) {
    checkDuration(duration);
    const about = `lock on resource "${lock.resource}"`;
    if (lock.expiration < Date.now() || !lock[HOLDING]?.isOf(lock.resource)) {
      const says = `Cannot extend ${about} because the lock has already expired.`;
      throw style.failed(lock.resource, says, style.attempts(this, 0));
    }
    const { retryCount, retryDelay } = { ...this.settings, ...settings };
    for (let attempts = 1; ; attempts += 1) {
      const began = Date.now();
      try {
        await lock[HOLDING].renew(duration);
        const until = began + duration - this.#drift(duration, settings);
        lock.expiration = Math.max(lock.expiration, until);
        lock[HOLDING].keepUntil(lock.expiration);
        return lock;
      } catch (error) {
        const reported = this.#report(error);
        const isLast = retryCount >= 0 && attempts > retryCount;
        const next = Date.now() + retryDelay;
        if (isLast || !mayPass(error) || error.code === 'lost' || next > lock.expiration) {
          const says = `Cannot extend ${about}.`;
          throw style.failed(lock.resource, says, style.attempts(this, attempts, reported), error);
        }
        await pause(retryDelay);
      }
    }
  }

  /** Emits what a look came to, and returns that. */
  #report(error) {
    if (!isBusy(error)) {
      this.emit('clientError', error);
      this.emit('error', error);
      return error;
    }
    const busy = new ResourceLockedError(error.message, error);
    this.emit('error', busy);
    return busy;
  }
}

/** What remains known of a lock whose lease was given out. */
function labelOf({ name, leaseId, fencingToken }) {
  return { name, leaseId, fencingToken };
}

async function locksOf(client, names, options) {
  if (names.length === 1) return [await client.lock(names[0], options)];
  return [...(await client.lockAll(names, options))];
}

/** Each name once: redlock sets a key twice. */
function namesOf(resources) {
  const names = [...new Set(Array.isArray(resources) ? resources : [resources])];
  if (names.length === 0) throw new TypeError('`resources` is empty: name at least one');
  return names;
}

function isBusy(error) {
  return error instanceof holdline.BusyError || error instanceof holdline.TimedOutError;
}

/** Whether another look may succeed. */
function mayPass(error) {
  const never = [holdline.InvalidError, holdline.UnsupportedError];
  return error instanceof holdline.LockError && !never.some((kind) => error instanceof kind);
}

function notReleased(resource, style, redlock, cause) {
  const says = `Unable to fully release the lock on resource "${resource}".`;
  return style.failed(resource, says, style.attempts(redlock, 1, cause), cause);
}

function failUnlessReleased(released, resource, style, redlock) {
  const failed = released.find(({ confirmed, lost }) => !confirmed || lost !== null);
  if (!failed) return;
  const why = failed.lost === null ? failed.failure : `it was lost before (${failed.lost})`;
  throw notReleased(resource, style, redlock, new Error(why));
}

function checkDuration(duration) {
  if (!Number.isSafeInteger(duration)) throw new Error('Duration must be an integer value in milliseconds.');
}

function refuseScripts(settings) {
  for (const verb of ['lock', 'unlock', 'acquire', 'release', 'extend']) {
    if (settings[`${verb}Script`] === undefined) continue;
    throw new TypeError(`\`${verb}Script\`: Holdline runs its own scripts. Leave it out`);
  }
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, milliseconds)));
}

module.exports = Redlock;
