import holdline from './index.cjs';

export const {
  connect,
  Client,
  Lock,
  Leadership,
  Locks,
  SlotLock,
  LockError,
  BusyError,
  TimedOutError,
  CancelledError,
  LostError,
  TooManyWaitersError,
  NoQuorumError,
  QuarantinedError,
  NotInitialisedError,
  UnsupportedError,
  ForeignError,
  RefusedError,
  UnavailableError,
  ProtocolError,
  InvalidError,
} = holdline;
export default holdline;
