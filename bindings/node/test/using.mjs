// `await using`, which Node knows from version 24 on: `using.test.mjs` runs it there.

import assert from 'node:assert/strict';

import { connect, LostError } from '../index.mjs';
import { aborted } from './ground.mjs';

const client = await connect('memory:using');
const isHeld = async (name) => (await client.inspect(name)).held;

{
  await using lock = await client.lock('a');
  await using locks = await client.lockAll(['b', 'c']);
  assert.ok((await isHeld('a')) && (await isHeld('c')) && lock.isValid && locks.isValid);
}
assert.ok(!(await isHeld('a')) && !(await isHeld('b')) && !(await isHeld('c')));

{
  await using lock = await client.lock('a');
  await lock.release();
}

const lost = async (then) => {
  await using lock = await client.lock('a', { maxHold: 100 });
  await aborted(lock.signal);
  then();
};
await assert.rejects(
  lost(() => {}),
  (error) => error instanceof LostError && error.reason === 'max_hold',
);
// The language keeps both errors.
const planned = new Error('as planned');
await assert.rejects(
  lost(() => {
    throw planned;
  }),
  (error) => error.suppressed === planned && error.error instanceof LostError,
);

{
  await using scoped = await connect('memory:using');
  await scoped.lock('d');
}
assert.equal(await isHeld('d'), false);
console.log('done');
