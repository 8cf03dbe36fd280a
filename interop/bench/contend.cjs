// Many contend for one lock of npm's `redlock` 4; prints acquisitions, the p99 wait in ns, most, least.
//
// Usage: contend.cjs URLS CONTENDERS MILLISECONDS. Its pauses are those that it has unless told
// otherwise; it only goes on trying.
'use strict';

const Redis = require('ioredis');
const Redlock = require('redlock4');

async function main() {
  const [urls, contenders, milliseconds] = process.argv.slice(2);
  const clients = urls.split(',').map((url) => new Redis(url));
  const redlock = new Redlock(clients, { retryCount: 1_000_000 });
  const end = process.hrtime.bigint() + BigInt(milliseconds) * 1_000_000n;
  const waits = [];
  const contend = async () => {
    let count = 0;
    while (process.hrtime.bigint() < end) {
      const start = process.hrtime.bigint();
      const lock = await redlock.lock('peer:contended', 30_000);
      waits.push(Number(process.hrtime.bigint() - start));
      count += 1;
      await lock.unlock();
    }
    return count;
  };
  const counts = await Promise.all(Array.from({ length: Number(contenders) }, contend));
  waits.sort((one, other) => one - other);
  const p99 = waits[Math.floor((waits.length * 99) / 100)];
  console.log(`${waits.length} ${p99} ${Math.max(...counts)} ${Math.min(...counts)}`);
  clients.forEach((client) => client.disconnect());
}

main();
