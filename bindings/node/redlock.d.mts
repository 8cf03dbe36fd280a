// The types for `import`: those of redlock.d.cts, which `export *` cannot pass on (TS2498).
export {
  default,
  ExecutionError,
  Lock,
  LockError,
  ResourceLockedError,
  type Attempts,
  type Callback,
  type ExecutionResult,
  type ExecutionStats,
  type RedlockAbortSignal,
  type RedlockClient,
  type Settings,
} from './redlock.cjs';
