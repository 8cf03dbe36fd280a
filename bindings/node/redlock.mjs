// The module for `import`; redlock.cjs says what it is.
import Redlock from './redlock.cjs';

export default Redlock;
export const { Lock, LockError, ExecutionError, ResourceLockedError } = Redlock;
