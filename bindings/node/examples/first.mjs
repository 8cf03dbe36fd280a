// A first lock.

import { connect, TimedOutError } from 'holdline';

const client = await connect('redis://locks.example');
try {
  await using lock = await client.lock('nightly-report', { wait: '10s' });
  console.log('only one of us, with a token:', lock.fencingToken > 0n);
} catch (error) {
  if (!(error instanceof TimedOutError)) throw error;
  console.log('not within 10 s:', error.message); // says who holds it; so does error.details.holder
}
// => only one of us, with a token: true
