// A late writer is refused by a row of PostgreSQL.

import { connect } from 'holdline';
import pg from 'pg';

const database = new pg.Client('postgres://data.example/shop');
await database.connect();
await database.query(`CREATE TABLE IF NOT EXISTS stock (
  item text PRIMARY KEY, apples integer NOT NULL, mark bigint NOT NULL DEFAULT 0)`);
await database.query(`INSERT INTO stock VALUES ('17', 10) ON CONFLICT DO NOTHING`);

async function sell(item, token) {
  const sold = await database.query(
    'UPDATE stock SET apples = apples - 1, mark = $2 WHERE item = $1 AND mark <= $2',
    [item, token],
  );
  return sold.rowCount === 1;
}

const client = await connect('redis://locks.example');
const paused = await client.lock('stock/17');
const late = paused.fencingToken;
await paused.release(); // or its lease ended, and the program did not notice

await using lock = await client.lock('stock/17');
console.log('the holder sells:', await sell('17', lock.fencingToken));
console.log('the late writer sells:', await sell('17', late));
// => the holder sells: true
// => the late writer sells: false
await database.end();
