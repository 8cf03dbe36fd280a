// The other kinds.

import { connect } from 'holdline';

await using client = await connect('redis://locks.example');

{
  await using lock = await client.tryLock('nightly-report');
  console.log('not held by anybody else:', lock !== null);
  console.log('a second try:', await client.tryLock('nightly-report'));
}
// => not held by anybody else: true
// => a second try: null

{
  await using one = await client.lock('settings', { shared: true });
  await using other = await client.lock('settings', { shared: true });
  console.log('two readers:', one.isValid && other.isValid);
}
// => two readers: true

{
  await using call = await client.lock('calls-to-the-api', { permits: 3 });
  console.log('one of three permits:', call.isValid);
}
// => one of three permits: true

{
  await using both = await client.lockAll(['accounts/7', 'accounts/3']);
  console.log('all of', both.length);
}
// => all of 2

{
  await using leadership = await client.elect('scheduler', 'http://10.0.0.7:8080');
  const leader = await client.leader('scheduler');
  console.log('leads:', leader.value, leader.term === leadership.term);
}
// => leads: http://10.0.0.7:8080 true

const outcome = await client.once('cleanup', { cron: '0 3 * * *', zone: 'Europe/Berlin' }, () => 'clean');
console.log(outcome.ran ? outcome.value : outcome.why);
const again = await client.once('cleanup', { cron: '0 3 * * *', zone: 'Europe/Berlin' }, () => 'clean');
console.log(again.ran ? again.value : again.why);
// => clean
// => already_ran
