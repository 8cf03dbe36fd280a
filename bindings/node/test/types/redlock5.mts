// A program of redlock 5, as a module.
import Redlock, { ExecutionError, Lock, ResourceLockedError } from 'holdline/redlock';

const redlock = new Redlock([{}], { retryCount: 0 });
redlock.on('error', (error) => {
  if (error instanceof ResourceLockedError) return;
});

export async function program(): Promise<number> {
  let lock: Lock = await redlock.acquire(['a'], 5000);
  lock = await lock.extend(5000);
  const token: bigint | undefined = lock.fencingToken;
  await lock.release();
  try {
    return await redlock.using(['a'], 5000, async (signal) => {
      if (signal.aborted) throw signal.error;
      return Number(token);
    });
  } catch (error) {
    if (!(error instanceof ExecutionError)) throw error;
    const votes = await Promise.all(error.attempts);
    return votes.filter((stats) => stats.votesAgainst.size >= stats.quorumSize).length;
  }
}
import * as all from 'holdline/redlock';

// One class, by each of its names.
const same: typeof Redlock = all.default;
export const settings: Partial<all.Settings> = same === Redlock ? redlock.settings : {};
