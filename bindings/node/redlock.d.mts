// The types for `import`.
import Redlock from './redlock.cjs';

export default Redlock;
export { ExecutionError, Lock, LockError, ResourceLockedError } from './redlock.cjs';
export type {
  Attempts,
  Callback,
  ExecutionResult,
  ExecutionStats,
  RedlockAbortSignal,
  RedlockClient,
  Settings,
} from './redlock.cjs';
