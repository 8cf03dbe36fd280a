// A program of redlock 4.
import Redlock = require('holdline/redlock');

const redlock: Redlock = new Redlock([{}]);
redlock.lock('a', 100, (error, lock) => {
  if (error instanceof Redlock.LockError) return;
  const attempts: number | undefined = lock?.attempts;
  lock?.unlock(() => attempts);
});
redlock.lock(['a', 'b'], 100).then((lock) => lock.unlock());
