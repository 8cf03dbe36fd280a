// What an error says.

import { connect, TimedOutError } from 'holdline';

const client = await connect('redis://locks.example');
await using lock = await client.lock('nightly-report', { reason: 'release 42' });
try {
  await client.lock('nightly-report', { wait: 0 });
} catch (error) {
  if (!(error instanceof TimedOutError)) throw error;
  console.log(error.code, error.certainty, error.details.holder?.about.reason);
}
// => timed_out not_applied release 42
