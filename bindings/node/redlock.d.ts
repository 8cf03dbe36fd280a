// npm's `redlock` 4 and 5, held by Holdline; redlock.cjs says what differs.

import { EventEmitter } from 'node:events';

/** A client of ioredis or node-redis, or the URL of Holdline in place of all clients. */
export type RedlockClient = object;

export interface Settings {
  /** The share of a duration by which `expiration` is earlier. */
  readonly driftFactor: number;
  /** With `retryDelay`: how long to wait. -1 is for ever, 0 looks once. */
  readonly retryCount: number;
  readonly retryDelay: number;
  /** No effect: Holdline chooses its own pauses. */
  readonly retryJitter: number;
  /** Only checked: `using` renews at a third of the lease. */
  readonly automaticExtensionThreshold: number;
}

/** Single votes are not known: all clients voted alike. */
export interface ExecutionStats {
  readonly membershipSize: number;
  readonly quorumSize: number;
  readonly votesFor: Set<RedlockClient>;
  readonly votesAgainst: Map<RedlockClient, Error>;
}
export type Attempts = ReadonlyArray<Promise<ExecutionStats>>;
export interface ExecutionResult {
  attempts: Attempts;
}
export type RedlockAbortSignal = AbortSignal & { error?: Error };
export type Callback<T> = (error: Error | null, value?: T) => void;

/** An acquisition, extension or release failed; `cause` is the error of Holdline. */
declare class LockError<A = number> extends Error {
  readonly name: string;
  readonly attempts: A;
}
/** The same, in version 5. */
declare class ExecutionError extends LockError<Attempts> {}
/** Somebody else holds a resource. */
declare class ResourceLockedError extends Error {}

/** What is held. `A` is what `attempts` is: a number in version 4, an array in version 5. */
declare class Lock<A = Attempts> {
  readonly redlock: Redlock;
  readonly resource: string[];
  readonly resources: string[];
  /** The lease id. */
  readonly value: string;
  readonly attempts: A;
  /** In milliseconds since 1970; 0 once it was released. */
  expiration: number;
  /** The number to hand to the resource, which rejects smaller ones; with one server. */
  readonly fencingToken: bigint | undefined;
  /** One for each resource. */
  readonly fencingTokens: bigint[] | undefined;
  release(): Promise<ExecutionResult>;
  unlock(callback?: Callback<void>): Promise<void>;
  extend(duration: number, callback?: Callback<Lock<A>>): Promise<this>;
}

declare class Redlock extends EventEmitter {
  static readonly Redlock: typeof Redlock;
  static readonly Lock: typeof Lock;
  static readonly LockError: typeof LockError;
  static readonly ExecutionError: typeof ExecutionError;
  static readonly ResourceLockedError: typeof ResourceLockedError;

  readonly clients: Set<RedlockClient>;
  readonly servers: RedlockClient[];
  readonly settings: Settings;
  constructor(clients: Iterable<RedlockClient> | string, settings?: Partial<Settings>);

  /** Acquires all resources for a duration in milliseconds. */
  acquire(resources: string[], duration: number, settings?: Partial<Settings>): Promise<Lock>;
  acquire(resource: string, duration: number, settings?: Partial<Settings>): Promise<Lock<number>>;
  acquire(resource: string | string[], ttl: number, callback: Callback<Lock<number>>): Promise<Lock<number>>;
  lock(resource: string | string[], ttl: number, callback?: Callback<Lock<number>>): Promise<Lock<number>>;
  lockWithOptions(
    resource: string | string[],
    ttl: number,
    settings: Partial<Settings>,
    callback?: Callback<Lock<number>>,
  ): Promise<Lock<number>>;
  acquireWithOptions: Redlock['lockWithOptions'];
  /** For `using` of bluebird, which must be installed. */
  disposer(resource: string | string[], ttl: number, errorHandler?: (error: Error) => void): unknown;

  /** Releases; fails if it was lost, or if the servers did not confirm. */
  release<A>(lock: Lock<A>, settings?: Partial<Settings>): Promise<ExecutionResult>;
  release<A>(lock: Lock<A>, callback: Callback<void>): Promise<void>;
  unlock<A>(lock: Lock<A>, callback?: Callback<void>): Promise<void>;
  /** Extends the lease to this duration from now, or to what is left of it if that is longer. */
  extend<A>(lock: Lock<A>, duration: number, settings?: Partial<Settings>): Promise<Lock<A>>;
  extend<A>(lock: Lock<A>, duration: number, callback: Callback<Lock<A>>): Promise<Lock<A>>;
  /** Runs a routine under a lease that is renewed; its signal aborts when the lease is lost. */
  using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Settings>,
    routine: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  using<T>(
    resources: string[],
    duration: number,
    routine: (signal: RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  /** Closes Holdline's connection, and quits the clients. */
  quit(callback?: Callback<unknown[]>): Promise<unknown[]>;
}

export { ExecutionError, Lock, LockError, ResourceLockedError };
export default Redlock;
