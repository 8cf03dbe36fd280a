'use strict';
// The errors: one class for each kind of failure, with what is certain about it.

class LockError extends Error {
  constructor(message, fields = {}) {
    super(message);
    this.code = fields.code ?? new.target.code;
    this.certainty = fields.certainty ?? 'not_applied';
    this.engine = fields.engine ?? 'holdline';
    this.lockName = fields.lockName ?? null;
    this.details = fields.details ?? {};
  }
}

class LostError extends LockError {
  get reason() {
    return this.details.reason ?? 'expired';
  }
}

const classes = { LockError, LostError };
const byCode = new Map();
const codes = {
  BusyError: 'busy',
  TimedOutError: 'timed_out',
  CancelledError: 'cancelled',
  LostError: 'lost',
  TooManyWaitersError: 'too_many_waiters',
  NoQuorumError: 'no_quorum',
  QuarantinedError: 'quarantined',
  NotInitialisedError: 'not_initialised',
  UnsupportedError: 'unsupported',
  ForeignError: 'foreign',
  RefusedError: 'refused',
  UnavailableError: 'unavailable',
  ProtocolError: 'protocol',
  InvalidError: 'invalid',
};
for (const [name, code] of Object.entries({ LockError: 'other', ...codes })) {
  classes[name] ??= { [name]: class extends LockError {} }[name];
  classes[name].code = code;
  // On the prototype: traces and logs print it, and it is no field of each error.
  Object.defineProperty(classes[name].prototype, 'name', { value: name, configurable: true });
  byCode.set(code, classes[name]);
}

function camelCase(name) {
  return name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
}

/** Makes the error of a failure that the native module reports. */
function errorOf(failure) {
  const details = JSON.parse(failure.details);
  let message = failure.message;
  if (details.field !== undefined) {
    const field = camelCase(details.field);
    message = message.replaceAll(details.field, field);
    details.field = field;
  }
  if (failure.kind === 'type') return new TypeError(message);
  const { kind: code, certainty, engine, name } = failure;
  const fields = { code, certainty, engine, lockName: name ?? null, details };
  return new (byCode.get(code) ?? LockError)(message, fields);
}

/**
 * Returns what became of a request; throws if it failed. An async function calls this after its
 * `await`, so that the stack of the error names who waits.
 */
function unlessFailed(settled) {
  if (settled.failure !== undefined) throw errorOf(settled.failure);
  return settled;
}

/** The error of a lease that is lost for a reason: its word and its text. */
function lostError(lockName, { word, text }) {
  const message = `the lease of ${JSON.stringify(lockName)} is lost: ${text}`;
  return new LostError(message, { lockName, details: { reason: word } });
}

/** Why a lease is at risk; that of its loss once it is lost. */
function riskError(lockName, why) {
  if (!['not_renewed', 'runs_out', 'revoked', 'other'].includes(why.word)) {
    return lostError(lockName, why);
  }
  const message = `the lease of ${JSON.stringify(lockName)} is at risk: ${why.text}`;
  return new LockError(message, { code: 'at_risk', lockName, details: { reason: why.word } });
}

module.exports = { classes, lostError, riskError, unlessFailed };
