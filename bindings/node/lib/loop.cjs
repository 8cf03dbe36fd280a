'use strict';
// How an event loop waits for the native module's requests.
//
// A request is polled on this thread. If it has not ended, the native module names its key later,
// and it is polled again. So nothing of it runs, and nothing is granted, while the loop is blocked.

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
      'Packages have the addon for Linux with glibc 2.34 on x64 and arm64; elsewhere, build it from source';
    throw new Error(message, { cause });
  }
}

const native = load();

/** What looks at each request that has not ended, by its key. */
const waiting = new Map();
const notifier = new native.Notifier(() => {
  for (const key of notifier.drain()) waiting.get(key)?.();
});

// A request keeps the process alive, a held lock does not. The timer stands for all requests.
const alive = timers.setInterval(() => {}, 2 ** 31 - 1);
alive.unref();
let requests = 0;

function begin() {
  requests += 1;
  if (requests === 1) alive.ref();
}

function end() {
  requests -= 1;
  if (requests === 0) alive.unref();
}

/** Calls `settle` once with what became of an operation. Returns what looks at it now. */
function follow(operation, settle) {
  const look = () => {
    const settled = operation.poll(notifier);
    if (settled == null) {
      waiting.set(operation.key, look);
      return;
    }
    waiting.delete(operation.key);
    settle(settled);
  };
  look();
  return look;
}

/** Forgets an operation, and gives up what it asked for. */
function forget(operation) {
  waiting.delete(operation.key);
  operation.cancel();
}

/**
 * Waits for a request. `signal` gives it up, and so do the functions that it puts into `givingUp`.
 */
function request(operation, signal, givingUp) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      operation.cancel();
      reject(signal.reason);
      return;
    }
    let ended = false;
    const over = () => {
      ended = true;
      end();
      signal?.removeEventListener('abort', aborted);
      givingUp?.delete(giveUp);
    };
    const giveUp = (reason) => {
      over();
      forget(operation);
      reject(reason);
    };
    const aborted = () => giveUp(signal.reason);
    begin();
    try {
      follow(operation, (settled) => {
        over();
        resolve(settled);
      });
    } catch (error) {
      over();
      reject(error);
    }
    if (ended) return;
    signal?.addEventListener('abort', aborted);
    givingUp?.add(giveUp);
  });
}

module.exports = { native, follow, forget, request };
