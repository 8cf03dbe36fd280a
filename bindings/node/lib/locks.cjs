'use strict';
// What is held.

const { errorOf, lostError, riskError } = require('./errors.cjs');
const { follow, request } = require('./loop.cjs');

const asyncDispose = Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose');
/** Only this package makes locks. */
const OURS = Symbol('holdline');

// Locks that are no garbage although nothing else may reference them: a program waits for their
// signal, or a job runs under them. A lock leaves at its end, or when it is lost.
const kept = new Set();

/** Waits for an operation, and returns its data. */
async function answer(operation, signal, givingUp) {
  const settled = await request(operation, signal, givingUp);
  if (settled.failure != null) throw errorOf(settled.failure);
  return JSON.parse(settled.json);
}

/** A signal that aborts when an operation ends, unless the lock was released. */
class Watch {
  #controller = new AbortController();
  #look;

  constructor(operation, abortWith) {
    let isOver = false;
    const look = follow(operation, (settled) => {
      isOver = true;
      const why = JSON.parse(settled.json);
      if (why.word !== 'released') this.#controller.abort(abortWith(why));
    });
    this.#look = () => isOver || look();
  }

  get signal() {
    // After a pause of the event loop the wake-up may still be in its queue.
    this.#look();
    return this.#controller.signal;
  }

  abort(reason) {
    this.#controller.abort(reason);
  }
}

class Lock {
  #grant;
  #onEnd;
  #lost;
  #risk;
  /** The release, once it was started. */
  #release;
  /** Why it had been lost before its release. */
  #why = null;
  #isDetached = false;

  constructor(ours, grant, onEnd) {
    if (ours !== OURS) throw new TypeError('a Lock comes from a Client');
    this.#grant = grant;
    this.#onEnd = onEnd;
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
    return this.#grant.isValid;
  }

  get remaining() {
    return this.#grant.remaining;
  }

  get signal() {
    if (this.#lost === undefined) {
      this.#keep();
      this.#lost = new Watch(this.#grant.lost(), (why) => {
        kept.delete(this);
        return lostError(this.name, why);
      });
    }
    return this.#lost.signal;
  }

  get atRisk() {
    // The loss ends what keeps the lock.
    void this.signal;
    this.#risk ??= new Watch(this.#grant.atRisk(), (why) => riskError(this.name, why));
    return this.#risk.signal;
  }

  #keep() {
    if (this.#release === undefined && !this.#isDetached) kept.add(this);
  }

  async renew(leaseDuration) {
    return answer(this.#grant.renew(leaseDuration));
  }

  release() {
    this.#release ??= this.#giveBack();
    return this.#release;
  }

  #over() {
    kept.delete(this);
    this.#onEnd();
  }

  async #giveBack() {
    this.#over();
    const outcome = await answer(this.#grant.release());
    this.#why = outcome.lost;
    if (this.#why !== null) this.#lost?.abort(lostError(this.name, this.#why));
    return { ...outcome, lost: this.#why?.word ?? null };
  }

  async detach() {
    const lease = await answer(this.#grant.detach());
    this.#isDetached = true;
    this.#over();
    return Object.freeze(lease);
  }

  async [asyncDispose]() {
    if (this.#isDetached) return;
    await this.release();
    if (this.#why !== null) throw lostError(this.name, this.#why);
  }

  /** Ends a slot by a request of its own. */
  static end(lock, verb) {
    const ended = answer(lock.#grant[verb]());
    lock.#over();
    lock.#release ??= ended.then(
      () => ({ confirmed: true, heldFor: null, lost: null, failure: null }),
      (error) => ({ confirmed: false, heldFor: null, lost: null, failure: error.message }),
    );
    return ended;
  }

  /** Keeps a lock until its end. */
  static keep(lock) {
    lock.#keep();
  }

  static grantOf(lock) {
    return lock.#grant;
  }
}

// For the other classes of this package only.
const { end, grantOf, keep } = Lock;
delete Lock.end;
delete Lock.keep;
delete Lock.grantOf;

class Leadership extends Lock {
  get term() {
    return this.fencingToken;
  }

  async proclaim(value) {
    if (typeof value !== 'string') throw new TypeError(`\`value\` is a string, not ${typeof value}`);
    await answer(grantOf(this).proclaim(value));
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

module.exports = { asyncDispose, OURS, answer, end, keep, Lock, Leadership, SlotLock, Locks };
