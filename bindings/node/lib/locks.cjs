'use strict';
// What is held.

// Now, so that tests of a program that mock timers later do not have this one.
const { setTimeout } = require('node:timers');

const { lostError, riskError, unlessFailed } = require('./errors.cjs');
const { eventLoop, follow, look, request } = require('./loop.cjs');

const asyncDispose = Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose');
/** Only this package makes locks. */
const OURS = Symbol('holdline');

/** For how long a lock is no garbage at least, in milliseconds: most end earlier, and cost less so. */
const YOUNG = 1000;

/** The grants that have not ended. */
const held = new Set();
/** A lock that became garbage is given back. */
const garbage = new FinalizationRegistry((grant) => grant.giveUp());
/** Lets all locks become garbage that are held now. */
let grownUp = null;

function letGrow() {
  grownUp ??= setTimeout(() => {
    grownUp = null;
    for (const grant of held) grant.watch();
  }, YOUNG).unref();
}

/** Waits for an operation, and returns its data. */
async function answer(start, signal, requests) {
  const settled = unlessFailed(await request(start, signal, requests));
  return JSON.parse(settled.json);
}

/** The outcome of a release, as programs get it. */
function releaseOf([confirmed, heldFor, lost, failure]) {
  return { confirmed, heldFor, lost: lost?.word ?? null, failure };
}

/** Releases grants, but waits no longer than until then. Their programs learn why. */
async function takeBack(grants, until, text) {
  if (grants.length === 0) return;
  let limit;
  const isOver = new Promise((resolve) => {
    limit = setTimeout(resolve, Math.max(0, until - performance.now()));
  });
  await Promise.race([Promise.allSettled(grants.map((grant) => grant.takeBack(text))), isOver]);
  clearTimeout(limit);
}

/** A signal that aborts when an operation ends, unless the lock was released. */
class Watch {
  #controller = new AbortController();
  #abortWith;
  #key;

  constructor(started, abortWith) {
    this.#abortWith = abortWith;
    this.#key = follow(started, this);
  }

  settle({ why }) {
    this.#key = undefined;
    if (why !== undefined && why.word !== 'released') this.abort(why);
  }

  get signal() {
    // After a pause of the event loop the wake-up may still be in its queue.
    if (this.#key !== undefined) look(this.#key);
    return this.#controller.signal;
  }

  abort(why) {
    this.#controller.abort(this.#abortWith(why));
  }
}

/** A grant. Its lock may become garbage, and then it is given back. */
class Grant {
  /** The lock while it is young or needed: a program waits for its signal, or a job runs under it. */
  #lock = null;
  #isNeeded = false;
  #isWatched = false;
  #lost;
  #risk;
  /** The release, once it was started. */
  #release;
  /** Why it had been lost before its release. */
  why = null;
  isDetached = false;

  constructor(requests, [id, name, leaseId, mode, fencingToken, slotStart]) {
    this.requests = requests;
    this.id = id;
    this.name = name;
    this.leaseId = leaseId;
    this.mode = mode;
    this.fencingToken = fencingToken;
    this.slotStart = slotStart;
    held.add(this);
  }

  /** Belongs to a new lock. */
  join(lock) {
    this.#lock = lock;
    letGrow();
  }

  /** Keeps the lock until it is lost, or ends. */
  keep(lock) {
    if (this.#release !== undefined || this.isDetached) return;
    this.#lock = lock;
    this.#isNeeded = true;
  }

  /** Refers to the lock no more, so that it is garbage if nothing else does, unless it is needed. */
  watch() {
    if (this.#lock === null || this.#isNeeded) return;
    if (!this.#isWatched) garbage.register(this.#lock, this, this);
    this.#isWatched = true;
    this.#lock = null;
  }

  #over() {
    if (this.#isWatched) garbage.unregister(this);
    this.#lock = null;
  }

  /** The signal of the loss. The lock is needed from the first call until then. */
  lostSignal(lock) {
    if (this.#lost === undefined) {
      this.keep(lock);
      this.#lost = new Watch(eventLoop.lost(this.id), (why) => {
        this.#isNeeded = false;
        this.watch();
        return lostError(this.name, why);
      });
      if (this.why !== null) this.#lost.abort(this.why);
    }
    return this.#lost.signal;
  }

  get atRisk() {
    if (this.#risk === undefined) {
      this.#risk = new Watch(eventLoop.atRisk(this.id), (why) => riskError(this.name, why));
      if (this.why !== null) this.#risk.abort(this.why);
    }
    return this.#risk.signal;
  }

  release() {
    this.#release ??= this.#giveBack();
    return this.#release;
  }

  /** Releases for a reason of its own: a job may still run under the lock, and learns it first. */
  takeBack(text) {
    if (this.#release === undefined) {
      this.why = { word: 'released', text };
      this.#lost?.abort(this.why);
      this.#risk?.abort(this.why);
    }
    return this.release();
  }

  async #giveBack() {
    this.#over();
    try {
      const { released } = unlessFailed(await request(() => eventLoop.release(this.id)));
      const [confirmed, heldFor, lost, failure] = released;
      this.why = lost ?? this.why;
      if (this.why !== null) this.#lost?.abort(this.why);
      return releaseOf([confirmed, heldFor, this.why, failure]);
    } finally {
      held.delete(this);
    }
  }

  async detach() {
    const lease = await answer(() => eventLoop.detach(this.id));
    this.isDetached = true;
    this.#over();
    held.delete(this);
    eventLoop.forget(this.id);
    return Object.freeze(lease);
  }

  /** Ends a slot by a request of its own. */
  end(verb) {
    const ended = answer(() => eventLoop[verb](this.id)).finally(() => held.delete(this));
    this.#over();
    this.#release ??= ended.then(
      () => releaseOf([true, null, null, null]),
      (error) => releaseOf([false, null, null, error.message]),
    );
    return ended;
  }

  /** Its lock became garbage. */
  giveUp() {
    held.delete(this);
    this.requests.isUntidy = true;
    eventLoop.forget(this.id);
    const message =
      `the lock ${JSON.stringify(this.name)} was given back, since nothing references it any more: ` +
      'keep the Lock as long as its work takes, and release it';
    process.emitWarning(message, 'HoldlineWarning');
  }
}

class Lock {
  #grant;

  constructor(ours, grant) {
    if (ours !== OURS) throw new TypeError('a Lock comes from a Client');
    this.#grant = grant;
    grant.join(this);
  }

  get name() {
    return this.#grant.name;
  }

  get leaseId() {
    return this.#grant.leaseId;
  }

  get mode() {
    return this.#grant.mode;
  }

  get fencingToken() {
    return this.#grant.fencingToken;
  }

  get isValid() {
    return eventLoop.isValid(this.#grant.id);
  }

  get remaining() {
    return eventLoop.remaining(this.#grant.id);
  }

  get signal() {
    return this.#grant.lostSignal(this);
  }

  get atRisk() {
    // The loss ends what keeps the lock.
    void this.signal;
    return this.#grant.atRisk;
  }

  async renew(leaseDuration) {
    return answer(() => eventLoop.renew(this.#grant.id, leaseDuration));
  }

  release() {
    return this.#grant.release();
  }

  detach() {
    return this.#grant.detach();
  }

  async [asyncDispose]() {
    const grant = this.#grant;
    if (grant.isDetached) return;
    await grant.release();
    if (grant.why !== null) throw lostError(grant.name, grant.why);
  }

  static grantOf(lock) {
    return lock.#grant;
  }
}

// For the other classes of this package only.
const { grantOf } = Lock;
delete Lock.grantOf;

class Leadership extends Lock {
  get term() {
    return this.fencingToken;
  }

  async proclaim(value) {
    if (typeof value !== 'string') throw new TypeError(`\`value\` is a string, not ${typeof value}`);
    await answer(() => eventLoop.proclaim(grantOf(this).id, value));
  }
}

class SlotLock extends Lock {
  get slotStart() {
    return new Date(grantOf(this).slotStart);
  }
}

class Locks {
  #locks;
  #lost;

  constructor(ours, locks) {
    if (ours !== OURS) throw new TypeError('Locks come from a Client');
    this.#locks = locks;
  }

  get length() {
    return this.#locks.length;
  }

  get isValid() {
    return this.#locks.every((lock) => lock.isValid);
  }

  get signal() {
    if (this.#lost === undefined) {
      const controller = new AbortController();
      this.#lost = controller;
      for (const { signal } of this.#locks) {
        const abort = () => controller.abort(signal.reason);
        if (signal.aborted) abort();
        else signal.addEventListener('abort', abort, { once: true });
      }
    }
    // Each looks whether it is lost by now.
    for (const lock of this.#locks) void lock.signal;
    return this.#lost.signal;
  }

  release() {
    return Promise.all(this.#locks.map((lock) => lock.release()));
  }

  async [asyncDispose]() {
    const ends = await Promise.allSettled(this.#locks.map((lock) => lock[asyncDispose]()));
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  [Symbol.iterator]() {
    return this.#locks[Symbol.iterator]();
  }
}

module.exports = {
  asyncDispose, OURS, answer, held, grantOf, releaseOf, takeBack, Grant, Lock, Leadership, SlotLock, Locks,
};
