// Each call with its types, and what the types refuse. It is compiled only.

import {
  connect,
  BusyError,
  Client,
  InvalidError,
  Leadership,
  Lock,
  LockError,
  Locks,
  LostError,
  SlotLock,
  type Certainty,
  type Leader,
  type LeaseData,
  type LostReason,
  type OnceOutcome,
  type Release,
} from 'holdline';

const { signal } = new AbortController();
await connect();
const client: Client = await connect('redis://locks.example', {
  leaseDuration: '30s',
  answerWithin: 500,
  signal,
});
const engine: string = client.engine;

const lock: Lock = await client.lock('a', {
  wait: 0,
  leaseDuration: '1m',
  renewInterval: 100,
  maxHold: '1h',
  keep: 'fixed',
  fair: true,
  failInOutage: true,
  reason: 'x',
  labels: { team: 'a' },
  traceparent: 'x',
  lockClass: 'x',
  signal,
});
const maybe: Lock | null = await client.tryLock('a', { shared: true });
await client.lock('a', { permits: 3, count: 2 });
const token: bigint = lock.fencingToken;
const texts: string[] = [lock.name, lock.leaseId, lock.mode, engine];
const numbers: number[] = [lock.remaining, await lock.renew(), await lock.renew('1m')];
const flags: boolean[] = [lock.isValid, lock.signal.aborted, lock.atRisk.aborted];
const release: Release = await lock.release();
const lost: LostReason | null = release.lost;
const lease: LeaseData = await lock.detach();
const attached: Lock = await client.attach(lease);
const left: number = await client.renew(lease, '10s');
const released: Release = await client.release(lease);

const length: number = await client.using('a', async (held) => held.name.length);
const word: string = await client.using('a', { wait: 5 }, () => 'x');
const any: Lock = await client.lockAny(['a', 'b'], { wait: '1s' });
const all: Locks = await client.lockAll(['a', 'b'] as const);
for (const one of all) texts.push(one.name);
const both: Release[] = await all.release();
flags.push(all.isValid, all.signal.aborted, all.length > 0);

const leadership: Leadership = await client.elect('a', 'me', { wait: '1s' });
await leadership.proclaim('you');
const term: bigint = leadership.term;
const leader: Leader | null = await client.leader('a');
for await (const { value, since } of client.leaders('a', { signal })) {
  texts.push(value, since?.toISOString() ?? '');
}
const outcome: OnceOutcome<number> = await client.once('a', { every: '1d' }, (run: SlotLock) => {
  return run.slotStart.getTime();
});
if (outcome.ran) numbers.push(outcome.value);
else texts.push(outcome.why);
await client.once('a', { cron: '0 3 * * *', zone: 'Europe/Berlin', maxSkew: '1s' }, () => {});
for await (const state of client.list('a/')) texts.push(String(state.name));
const state: Record<string, unknown> = await client.inspect('a');
const isClean: boolean = await client.close('5s');

try {
  await using scoped = await client.lock('a');
  await using together = await client.lockAll(['a']);
  texts.push(scoped.name, String(together.length));
} catch (error) {
  if (error instanceof LostError) {
    const reason: LostReason = error.reason;
    texts.push(reason);
  }
  if (error instanceof BusyError || error instanceof InvalidError) throw error;
  if (error instanceof LockError) {
    const certainty: Certainty = error.certainty;
    texts.push(certainty, error.code, error.lockName ?? '');
  }
}

// @ts-expect-error: a name is a string
await client.lock(5);
// @ts-expect-error: an unknown option
await client.lock('a', { leaseTime: 5 });
// @ts-expect-error: names as the library spells them
await client.lock('a', { lease_duration: 5 });
// @ts-expect-error: a word that is no way to keep a lease
await client.lock('a', { keep: 'forever' });
// @ts-expect-error: several names share no semaphore
await client.lockAll(['a'], { permits: 3 });
// @ts-expect-error: a job is missing
await client.using('a', { wait: 5 });
// @ts-expect-error: a slot is not shared
await client.once('a', { every: '1d', shared: true }, () => {});
// @ts-expect-error: the value is there only if it ran
numbers.push(outcome.value);
// @ts-expect-error: it may be null
texts.push((await client.tryLock('a')).name);
// @ts-expect-error: a token is a bigint
numbers.push(lock.fencingToken);
// @ts-expect-error: it is read only
lock.isValid = true;
// @ts-expect-error: locks come from a client
new Lock();
// @ts-expect-error: clients come from `connect`
new Client();
// @ts-expect-error: a lease has a name
await client.attach({});

export const used = [maybe, token, lost, attached, left, released, length, word, any, both, term];
export const more = [leader, state, isClean, numbers, flags, texts];
