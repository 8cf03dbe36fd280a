// npm's `redlock` 4 and 5, held by Holdline; redlock.cjs says what differs.

import { EventEmitter } from 'node:events';

declare class Redlock extends EventEmitter {
  readonly clients: Set<Redlock.RedlockClient>;
  readonly servers: Redlock.RedlockClient[];
  readonly settings: Redlock.Settings;
  constructor(clients: Iterable<Redlock.RedlockClient> | string, settings?: Partial<Redlock.Settings>);

  /** Acquires all resources for a duration in milliseconds. */
  acquire(resources: string[], duration: number, settings?: Partial<Redlock.Settings>): Promise<Redlock.Lock>;
  acquire(resource: string, duration: number, settings?: Partial<Redlock.Settings>): Promise<Redlock.Lock<number>>;
  acquire(resource: string | string[], ttl: number, callback: Redlock.Callback<Redlock.Lock<number>>): Promise<Redlock.Lock<number>>;
  lock(resource: string | string[], ttl: number, callback?: Redlock.Callback<Redlock.Lock<number>>): Promise<Redlock.Lock<number>>;
  lockWithOptions(
    resource: string | string[],
    ttl: number,
    settings: Partial<Redlock.Settings>,
    callback?: Redlock.Callback<Redlock.Lock<number>>,
  ): Promise<Redlock.Lock<number>>;
  acquireWithOptions: Redlock['lockWithOptions'];
  /** For `using` of bluebird, which must be installed. */
  disposer(resource: string | string[], ttl: number, errorHandler?: (error: Error) => void): unknown;

  /** Releases; fails if it was lost, or if the servers did not confirm. */
  release<A>(lock: Redlock.Lock<A>, settings?: Partial<Redlock.Settings>): Promise<Redlock.ExecutionResult>;
  release<A>(lock: Redlock.Lock<A>, callback: Redlock.Callback<void>): Promise<void>;
  unlock<A>(lock: Redlock.Lock<A>, callback?: Redlock.Callback<void>): Promise<void>;
  /** Extends the lease to this duration from now, or to what is left of it if that is longer. */
  extend<A>(lock: Redlock.Lock<A>, duration: number, settings?: Partial<Redlock.Settings>): Promise<Redlock.Lock<A>>;
  extend<A>(lock: Redlock.Lock<A>, duration: number, callback: Redlock.Callback<Redlock.Lock<A>>): Promise<Redlock.Lock<A>>;
  /** Runs a routine under a lease that is renewed; its signal aborts when the lease is lost. */
  using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Redlock.Settings>,
    routine: (signal: Redlock.RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  using<T>(
    resources: string[],
    duration: number,
    routine: (signal: Redlock.RedlockAbortSignal) => Promise<T>,
  ): Promise<T>;
  /** Closes Holdline's connection, and quits the clients. */
  quit(callback?: Redlock.Callback<unknown[]>): Promise<unknown[]>;
}

declare namespace Redlock {
  /** A client of ioredis or node-redis, or the URL of Holdline in place of all clients. */
  type RedlockClient = object;

  interface Settings {
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
  interface ExecutionStats {
    readonly membershipSize: number;
    readonly quorumSize: number;
    readonly votesFor: Set<RedlockClient>;
    readonly votesAgainst: Map<RedlockClient, Error>;
  }
  type Attempts = ReadonlyArray<Promise<ExecutionStats>>;
  interface ExecutionResult {
    attempts: Attempts;
  }
  type RedlockAbortSignal = AbortSignal & { error?: Error };
  type Callback<T> = (error: Error | null, value?: T) => void;

  /** An acquisition, extension or release failed; `cause` is the error of Holdline. */
  class LockError<A = number> extends Error {
    readonly name: string;
    readonly attempts: A;
  }
  /** The same, in version 5. */
  class ExecutionError extends LockError<Attempts> {}
  /** Somebody else holds a resource. */
  class ResourceLockedError extends Error {}

  /** What is held. `A` is what `attempts` is: a number in version 4, an array in version 5. */
  class Lock<A = Attempts> {
    readonly redlock: Redlock;
    readonly resource: string[];
    readonly resources: string[];
    /** The lease id. */
    readonly value: string;
    readonly attempts: A;
    /** In milliseconds since 1970; 0 once it was released. */
    expiration: number;
    /** The number to hand to the resource, which rejects smaller ones; with one server or Sentinels. */
    readonly fencingToken: bigint | undefined;
    /** One for each resource. */
    readonly fencingTokens: bigint[] | undefined;
    release(): Promise<ExecutionResult>;
    unlock(callback?: Callback<void>): Promise<void>;
    extend(duration: number, callback?: Callback<Lock<A>>): Promise<this>;
  }

  export {
    Redlock,
    Redlock as default,
    Lock,
    LockError,
    ExecutionError,
    ResourceLockedError,
    Attempts,
    Callback,
    ExecutionResult,
    ExecutionStats,
    RedlockAbortSignal,
    RedlockClient,
    Settings,
  };
}

export = Redlock;
