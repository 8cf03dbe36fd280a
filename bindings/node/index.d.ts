/** Milliseconds, or a text with a unit: '250ms', '10s', '5m', '1h', '1d'. */
export type Time = number | string;

/** Whether a request took effect in the store. */
export type Certainty = 'applied' | 'not_applied' | 'unknown';

/** Why a lease is lost. */
export type LostReason =
  | 'expired'
  | 'max_hold'
  | 'ran_out'
  | 'missing'
  | 'revoked'
  | 'store_gone'
  | 'released';

export interface ConnectOptions {
  /** The lease of locks that set none; 30 s if it is not set. */
  leaseDuration?: Time;
  /** How long one request may take before the store counts as away. */
  answerWithin?: Time;
  /** Gives up on connecting. The promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Options of whatever is acquired. */
export interface CommonOptions {
  /** How long to wait for the name; for ever if it is not set. With 0 it looks once. */
  wait?: Time;
  /** How long the store keeps the lock without a renewal; that of the client if it is not set. */
  leaseDuration?: Time;
  /** How often the lease is renewed; a third of the lease if it is not set. */
  renewInterval?: Time;
  /** After this time the lease is lost, although it could be renewed. */
  maxHold?: Time;
  /** How the lease is kept; renewed in the background if it is not set. */
  keep?: 'renewed' | 'fixed' | 'detached' | 'live';
  /** Whether waiters are served in order, on engines that do so only on request. */
  fair?: boolean;
  /** Whether an outage of the store ends the wait with its error within seconds. */
  failInOutage?: boolean;
  /** Why it is held, for people. */
  reason?: string;
  /** Labels, for people and tools. */
  labels?: Record<string, string>;
  /** The W3C trace context of the holder. */
  traceparent?: string;
  /** The class of the lock, which metrics are labelled with. */
  lockClass?: string;
  /** Gives up the wait, and the place in the queue. The promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface LockOptions extends CommonOptions {
  /** A read lock: others may hold it too, but nobody exclusively. */
  shared?: boolean;
  /** A semaphore of so many permits. */
  permits?: number;
  /** How many of the permits to take; 1 if it is not set. */
  count?: number;
}

/** The slot, by `every` or by `cron`, and the options of its lock. */
export interface SlotOptions extends CommonOptions {
  /** The length of a slot, counted from 1970-01-01 00:00 UTC. */
  every?: Time;
  /** A cron expression: a slot begins when it fires. */
  cron?: string;
  /** The time zone of `cron`, an IANA name; UTC if it is not set. */
  zone?: string;
  /** Keep the slot whatever becomes of the job. */
  atMostOnce?: boolean;
  /** Keep the slot also when the job fails. */
  keepOnFailure?: boolean;
  /** By how much the clocks of two machines may differ; 1 s if it is not set. */
  maxSkew?: Time;
}

/** What became of a release. */
export interface Release {
  /** The store confirmed it. Otherwise the release goes on in the background. */
  readonly confirmed: boolean;
  /** Milliseconds that it was held; null if it was lost before. */
  readonly heldFor: number | null;
  /** Why it had been lost before: somebody else may have held the name since. */
  readonly lost: LostReason | null;
  /** Why the store did not confirm. */
  readonly failure: string | null;
}

/**
 * A detached lease as plain data, to hand to another process as JSON. It has the proof of the lock:
 * protect it as a secret.
 */
export interface LeaseData {
  readonly name: string;
  readonly [key: string]: unknown;
}

/**
 * A held lock. Its lease is renewed in the background, also while the event loop is blocked.
 *
 * Keep a reference as long as the work takes. A lock that became garbage is given back, with a
 * warning; one whose `signal` or `atRisk` was asked for stays until its end.
 */
export class Lock {
  protected constructor();
  readonly name: string;
  /** The proof of the lock: who knows it can renew and release. Keep it out of logs. */
  readonly leaseId: string;
  readonly mode: 'exclusive' | 'shared' | 'permits';
  /** The number to hand to the resource, which refuses smaller ones. */
  readonly fencingToken: bigint;
  /** Whether the lease is valid. It asks the clock, and no store. */
  readonly isValid: boolean;
  /** Milliseconds that the lease is still valid, without a further renewal. */
  readonly remaining: number;
  /**
   * Aborts when the lease is lost; its reason is a `LostError`. A release does not abort it, but that
   * by `close` or at the end of the process does, with the reason `released`.
   */
  readonly signal: AbortSignal;
  /**
   * Aborts earlier: when an operator revokes the lease, or when renewals fail or it runs out and one
   * renewal interval is left. Its reason is a `LockError` with the code `at_risk`, whose
   * `details.reason` is `revoked`, `not_renewed` or `runs_out`; a `LostError` once it is lost.
   */
  readonly atRisk: AbortSignal;
  /**
   * Renews now, and returns the milliseconds that are left. A duration that is longer than that of
   * the lease counts for all later renewals too; the lease is never shortened.
   */
  renew(leaseDuration?: Time): Promise<number>;
  /** Releases. For a lock that was lost it rejects nothing: the outcome says so. */
  release(): Promise<Release>;
  /** Gives the lease out of this process: it is not renewed, and ends after its duration. */
  detach(): Promise<LeaseData>;
  /** Releases; rejects with the `LostError` if it was lost before. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** A leadership: its release resigns. */
export class Leadership extends Lock {
  private constructor();
  /** The number of the term, which grows with each leader. */
  readonly term: bigint;
  /** Stores the value that `leader` returns. `leaders` yields each term once, with its value then. */
  proclaim(value: string): Promise<void>;
}

/** The lock of a job that runs once per slot. Its release gives the slot back. */
export class SlotLock extends Lock {
  private constructor();
  /** When the slot began. */
  readonly slotStart: Date;
}

/** What was locked together, and is released together. */
export class Locks implements Iterable<Lock> {
  private constructor();
  readonly length: number;
  /** Whether all leases are valid. */
  readonly isValid: boolean;
  /** Aborts when one of them is lost. */
  readonly signal: AbortSignal;
  release(): Promise<Release[]>;
  [Symbol.iterator](): Iterator<Lock>;
  /** Releases all; rejects with the first `LostError` if one was lost before. */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Leader {
  readonly term: bigint;
  readonly value: string;
  readonly since: Date | null;
  readonly host: string;
}

export type OnceOutcome<T> =
  | {
      readonly ran: true;
      readonly value: T;
      /** Why the store did not confirm that the job ran: another machine may run it again. */
      readonly failure: LockError | null;
    }
  | {
      readonly ran: false;
      readonly why: 'already_ran' | 'running_elsewhere';
      /** What the machine that took the slot states about itself. */
      readonly by: Record<string, unknown>;
    };

/** A connection to one store of locks. It comes from `connect`. */
export class Client {
  private constructor();
  readonly engine: string;
  /** Waits until the lock is held. */
  lock(name: string, options?: LockOptions): Promise<Lock>;
  /** `null` if somebody else holds it. A store that does not answer is an error, never `null`. */
  tryLock(name: string, options?: LockOptions): Promise<Lock | null>;
  /**
   * Runs `job` under the lock and releases it. Rejects with the job's error, or else with a
   * `LostError` if the lease was lost meanwhile.
   */
  using<T>(name: string, job: (lock: Lock) => Promise<T> | T): Promise<T>;
  using<T>(name: string, options: LockOptions, job: (lock: Lock) => Promise<T> | T): Promise<T>;
  /** One of several names: the first that is free. */
  lockAny(names: readonly string[], options?: CommonOptions): Promise<Lock>;
  /** All of several names, in an order that cannot deadlock. */
  lockAll(names: readonly string[], options?: CommonOptions): Promise<Locks>;
  /** Waits until it leads. */
  elect(name: string, value?: string, options?: CommonOptions): Promise<Leadership>;
  /** Who leads now. */
  leader(name: string): Promise<Leader | null>;
  /** The leaders, one after the other. It ends only by an error, `break` or its signal. */
  leaders(name: string, options?: { signal?: AbortSignal }): AsyncIterableIterator<Leader>;
  /** Runs a job once per slot in the whole fleet. */
  once<T>(
    name: string,
    slot: SlotOptions,
    job: (lock: SlotLock) => Promise<T> | T,
  ): Promise<OnceOutcome<T>>;
  /** Takes a detached lease over: it is renewed from now on. */
  attach(lease: LeaseData): Promise<Lock>;
  /** Renews a detached lease; returns the milliseconds that are left. */
  renew(lease: LeaseData, leaseDuration?: Time): Promise<number>;
  /** Releases a detached lease. */
  release(lease: LeaseData): Promise<Release>;
  /** Who holds a name, and who waits: the JSON of the command line. */
  inspect(name: string): Promise<Record<string, unknown>>;
  /** The names that are held or waited for. */
  list(prefix?: string): AsyncIterableIterator<Record<string, unknown>>;
  /**
   * Refuses new attempts, rejects those that wait with a `CancelledError`, and gives everything
   * back. Returns whether the store confirmed all of it within `limit`, 5 s if it is not set.
   */
  close(limit?: Time): Promise<boolean>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Connects to a store. Without a URL it is that of `HOLDLINE_URL`, else `local:`. */
export function connect(url?: string, options?: ConnectOptions): Promise<Client>;

/** A failure of a lock operation. Values of a wrong type are a `TypeError` instead. */
export class LockError extends Error {
  constructor(
    message: string,
    fields?: {
      code?: string;
      certainty?: Certainty;
      engine?: string;
      lockName?: string | null;
      details?: Record<string, unknown>;
    },
  );
  /** The word of its kind, as in the JSON of the command line: `busy`, `timed_out`, `lost`, … */
  readonly code: string;
  /** Whether the request took effect. */
  readonly certainty: Certainty;
  readonly engine: string;
  readonly lockName: string | null;
  /** What the kind has besides, such as `holder`, `field` or `nodes`; times in milliseconds. */
  readonly details: { readonly [field: string]: unknown };
}
/** Who holds a name, as in the JSON of the command line. */
export interface Holder {
  /** The fencing token, as a number: the `bigint` of the lock it is of. */
  readonly fencing_token: number | null;
  readonly held_for_ms: number | null;
  readonly left_ms: number | null;
  /** What the holder states about itself. */
  readonly about: { readonly host?: string; readonly pid?: number; readonly user?: string;
    readonly program?: string; readonly reason?: string; readonly [field: string]: unknown };
  readonly [field: string]: unknown;
}
/** Another client holds the name, or is ahead in its queue. */
export class BusyError extends LockError {
  readonly details: { readonly holder: Holder | null };
}
/** The wait limit passed while another client held the name. */
export class TimedOutError extends LockError {
  /** `waited` is in milliseconds. */
  readonly details: { readonly waited: number; readonly holder: Holder | null };
}
/** This client gave the request up. */
export class CancelledError extends LockError {}
/** The client no longer holds the lease. */
export class LostError extends LockError {
  readonly reason: LostReason;
}
/** The queue of the name is full. */
export class TooManyWaitersError extends LockError {}
/** Too few nodes answered. */
export class NoQuorumError extends LockError {}
/** The store may have lost its data, and refuses requests for `details.left` milliseconds. */
export class QuarantinedError extends LockError {}
/** The store has not been set up for locks. */
export class NotInitialisedError extends LockError {}
/** The engine cannot do this. */
export class UnsupportedError extends LockError {}
/** The data under the name is not ours. It was left as it is. */
export class ForeignError extends LockError {}
/** The store refused the request: authentication, rights, read-only, full. */
export class RefusedError extends LockError {}
/** The store did not answer. */
export class UnavailableError extends LockError {}
/** The store sent an invalid reply. */
export class ProtocolError extends LockError {}
/** The request itself is wrong. `details.field` names what is wrong. */
export class InvalidError extends LockError {}
