// The contract between the two helpers on Node. N1 owns it from the moment it is committed.

/** Milliseconds, or a text with a unit: '250ms', '10s', '5m', '1h', '1d'. */
export type Time = number | string;

export type Certainty = 'applied' | 'not_applied' | 'unknown';
export type LostReason = 'expired' | 'max_hold' | 'ran_out' | 'missing' | 'revoked' | 'store_gone' | 'released';

export interface ConnectOptions {
  /** The lease of locks that set none: 30 s. */
  leaseDuration?: Time;
  /** How long one request may take before the store counts as away. */
  answerWithin?: Time;
  /** Gives up on connecting. */
  signal?: AbortSignal;
}

export interface LockOptions {
  /** How long to wait; for ever unless set. 0 looks once. */
  wait?: Time;
  leaseDuration?: Time;
  renewInterval?: Time;
  maxHold?: Time;
  keep?: 'renewed' | 'fixed' | 'detached' | 'live';
  fair?: boolean;
  failInOutage?: boolean;
  reason?: string;
  labels?: Record<string, string>;
  traceparent?: string;
  lockClass?: string;
  /** A read lock: others may hold it too, but no exclusive lock. */
  shared?: boolean;
  /** A semaphore: takes `count` (1 unless set) of `permits`. */
  permits?: number;
  count?: number;
  /** Gives up the wait, and the place in the queue. The promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface SlotOptions extends Omit<LockOptions, 'shared' | 'permits' | 'count'> {
  every?: Time;
  cron?: string;
  zone?: string;
  atMostOnce?: boolean;
  keepOnFailure?: boolean;
  maxSkew?: Time;
}

export interface Release {
  /** The store confirmed it. Otherwise the release goes on in the background. */
  confirmed: boolean;
  /** Milliseconds that it was held; null if it was lost before. */
  heldFor: number | null;
  /** Why it had been lost before: somebody else may have held the name since. */
  lost: LostReason | null;
  /** Why the store did not confirm. */
  failure: string | null;
}

/** A detached lease as plain data, to hand to another process: JSON as the other faces write it. */
export interface LeaseData { readonly name: string; [key: string]: unknown }

/** What is held. */
export class Lock {
  readonly name: string;
  readonly leaseId: string;
  readonly mode: string;
  readonly fencingToken: bigint;
  readonly isValid: boolean;
  /** Milliseconds that the lease is still valid. */
  readonly remaining: number;
  /** Aborts when the lease is lost; `signal.reason` is a `LostError`. A release does not abort it. */
  readonly signal: AbortSignal;
  /** Aborts earlier: when it is revoked, or when one renewal interval is left. */
  readonly atRisk: AbortSignal;
  /** Renews now, and returns the milliseconds that are left. */
  renew(): Promise<number>;
  /** Releases. It never throws for a lock that was lost: the outcome says so. */
  release(): Promise<Release>;
  /** Gives the lease out of this process. */
  detach(): Promise<LeaseData>;
  /** Releases; throws the `LostError` if it was lost before. */
  [Symbol.asyncDispose](): Promise<void>;
}

export class Leadership extends Lock {
  readonly term: bigint;
  proclaim(value: string): Promise<void>;
}

/** What was locked together. Released together. */
export class Locks implements Iterable<Lock> {
  readonly length: number;
  readonly isValid: boolean;
  readonly signal: AbortSignal; // any of them lost
  release(): Promise<Release[]>;
  [Symbol.iterator](): Iterator<Lock>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Leader { term: bigint; value: string; since: Date | null; host: string | null }

export type OnceOutcome<T> =
  | { ran: true; value: T }
  | { ran: false; why: 'already_ran' | 'running_elsewhere'; by: Record<string, unknown> };

export class Client {
  readonly engine: string;
  lock(name: string, options?: LockOptions): Promise<Lock>;
  /** `null` if somebody else holds it. A store that does not answer is an error, never `null`. */
  tryLock(name: string, options?: LockOptions): Promise<Lock | null>;
  /** Runs `job` under the lock and releases it. Rejects with `LostError` if it was lost meanwhile. */
  using<T>(name: string, job: (lock: Lock) => Promise<T> | T): Promise<T>;
  using<T>(name: string, options: LockOptions, job: (lock: Lock) => Promise<T> | T): Promise<T>;
  /** One of several names. */
  lockAny(names: string[], options?: LockOptions): Promise<Lock>;
  /** All of several names, in an order that cannot deadlock. */
  lockAll(names: string[], options?: LockOptions): Promise<Locks>;
  /** Waits until it leads. Release resigns. */
  elect(name: string, value?: string, options?: LockOptions): Promise<Leadership>;
  leader(name: string): Promise<Leader | null>;
  leaders(name: string): AsyncIterable<Leader | null>;
  /** Runs a job once per slot in the whole fleet. */
  once<T>(name: string, slot: SlotOptions, job: (lock: Lock) => Promise<T> | T): Promise<OnceOutcome<T>>;
  attach(lease: LeaseData): Promise<Lock>;
  renew(lease: LeaseData, leaseDuration?: Time): Promise<number>;
  release(lease: LeaseData): Promise<Release>;
  inspect(name: string): Promise<Record<string, unknown>>;
  list(prefix?: string): AsyncIterable<Record<string, unknown>>;
  /** Refuses new attempts and gives everything back; whether all of it was confirmed within `limit` (5 s). */
  close(limit?: Time): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Without a URL: HOLDLINE_URL, else `local:` (as the other faces). */
export function connect(url?: string, options?: ConnectOptions): Promise<Client>;

export class LockError extends Error {
  /** The kind's word, as in the JSON of the command line and HTTP: 'busy', 'timed_out', 'lost', … */
  readonly code: string;
  readonly certainty: Certainty;
  readonly engine: string;
  readonly lockName: string | null;
  readonly details: Record<string, unknown>;
}
export class BusyError extends LockError {}
export class TimedOutError extends LockError {}
export class CancelledError extends LockError {}
export class LostError extends LockError { readonly reason: LostReason }
export class TooManyWaitersError extends LockError {}
export class NoQuorumError extends LockError {}
export class QuarantinedError extends LockError {}
export class NotInitialisedError extends LockError {}
export class UnsupportedError extends LockError {}
export class ForeignError extends LockError {}
export class RefusedError extends LockError {}
export class UnavailableError extends LockError {}
export class ProtocolError extends LockError {}
export class InvalidError extends LockError {}
