'use strict';
// How an event loop waits for the native module's requests.
//
// A request is polled on this thread. If it has not ended, it has a key, and the native module polls
// it again when this loop is called. So nothing of it runs, and nothing is granted, while the loop is
// blocked.

const timers = require('node:timers');
const { join } = require('node:path');

const PLATFORM = `${process.platform}-${process.arch}${process.platform === 'linux' ? '-gnu' : ''}`;

function load() {
  const file = `holdline.${PLATFORM}.node`;
  try {
    return require(join(__dirname, '..', file));
  } catch (cause) {
    const message =
      `holdline: ${file} cannot be loaded on ${PLATFORM} with Node ${process.version}. ` +
      'Packages have the addon for Linux with glibc 2.34 on x64 and arm64; elsewhere, build it from ' +
      'source. A bundler must leave the package `holdline` out, as an external one';
    throw new Error(message, { cause });
  }
}

const native = load();

/** What waits for each operation that has not ended, by its key: its `settle` is called once. */
const waiting = new Map();
const eventLoop = new native.EventLoop(() => {
  for (const settled of eventLoop.drain()) deliver(settled);
});

function deliver(settled) {
  const waits = waiting.get(settled.key);
  waiting.delete(settled.key);
  if (waits !== undefined) {
    waits.settle(settled);
    return;
  }
  // Given up after it had ended.
  for (const [id] of settled.grants ?? []) eventLoop.forget(id);
}

// A request keeps the process alive, a held lock does not. The timer stands for all requests.
const alive = timers.setInterval(() => {}, 2 ** 31 - 1);
alive.unref();
let pending = 0;

function begin() {
  pending += 1;
  if (pending === 1) alive.ref();
}

function end() {
  pending -= 1;
  if (pending === 0) alive.unref();
}

/** Has `waits.settle` called with what became of an operation. Returns its key until it has ended. */
function follow(started, waits) {
  if (typeof started !== 'number') {
    waits.settle(started);
    return undefined;
  }
  waiting.set(started, waits);
  return started;
}

/** Looks now whether an operation has ended. */
function look(key) {
  const settled = eventLoop.look(key);
  if (settled != null) deliver(settled);
}

/** Whether what is started in this turn is sent together, at its end. */
let isBatch = false;

/** Ends the batch when the promises of this turn were handled: a tick runs after all of them. */
function endBatch() {
  isBatch = false;
  eventLoop.endBatch();
}

function openBatch() {
  isBatch = true;
  eventLoop.openBatch();
  queueMicrotask(() => process.nextTick(endBatch));
}

process.on('exit', endBatch);

/** The requests of one client. */
class Requests {
  /** Whether something was given up, which goes on in the background. */
  isUntidy = false;

  /** Gives up those that wait. */
  giveUp(reason) {
    for (const waits of [...waiting.values()]) {
      if (waits.requests === this) waits.giveUp(reason);
    }
  }
}

/** A request that waits. It listens to the signal that gives it up. */
class Request {
  #key;
  #resolve;
  #reject;
  #signal;

  constructor(key, resolve, reject, signal, requests) {
    this.#key = key;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = signal;
    this.requests = requests;
    begin();
    signal?.addEventListener('abort', this);
  }

  settle(settled) {
    this.#over();
    this.#resolve(settled);
  }

  giveUp(reason) {
    this.#over();
    waiting.delete(this.#key);
    eventLoop.cancel(this.#key);
    if (this.requests !== undefined) this.requests.isUntidy = true;
    this.#reject(reason);
  }

  handleEvent() {
    this.giveUp(this.#signal.reason);
  }

  #over() {
    end();
    this.#signal?.removeEventListener('abort', this);
  }
}

/**
 * Starts a request, and resolves with what became of it, which may be a failure. `signal` gives it
 * up, and so does the client to which `requests` belong.
 */
function request(start, signal, requests) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) throw signal.reason;
    // The first one is sent at once.
    if (pending > 0 && !isBatch) openBatch();
    const started = start();
    if (typeof started === 'number') {
      waiting.set(started, new Request(started, resolve, reject, signal, requests));
    } else {
      resolve(started);
    }
  });
}

module.exports = { native, eventLoop, follow, look, request, Requests };
