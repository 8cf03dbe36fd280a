// The ends of processes and of worker threads, and locks that nobody has any more.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { Worker } from 'node:worker_threads';

import { connect } from '../index.mjs';
import { aName, eventually, LONG, packageFile, script, SOON, Stores } from './ground.mjs';

const stores = new Stores();
const clients = new Map();
after(async () => {
  for (const client of clients.values()) await client.close();
  await stores.stop();
});

async function clientOf(engine) {
  const url = await stores.url(engine);
  if (!clients.has(url)) clients.set(url, await connect(url));
  return { client: clients.get(url), url };
}

async function isHeld(client, name) {
  return (await client.inspect(name)).held;
}

/** The head of a script that connects. */
const head = (url) => `const client = await connect(${JSON.stringify(url)});\n`;
/** What acquires a lock in a script. */
const lock = (name) => `await client.lock('${name}', { leaseDuration: '${LONG}' })`;

for (const engine of ['local', 'redis']) {
  test(`${engine}: a held lock keeps no process alive, and is given back at its end`, async () => {
    const { client, url } = await clientOf(engine);
    const name = aName();
    const { line, exited } = script(`${head(url)} globalThis.held = ${lock(name)}; say('held');`);
    assert.equal(await line(), 'held');
    assert.equal(await exited, 0);
    assert.equal(await isHeld(client, name), false);
  });

  test(`${engine}: a signal that is used keeps no process alive`, async () => {
    const { client, url } = await clientOf(engine);
    const name = aName();
    const { exited } = script(`
      ${head(url)}
      globalThis.held = ${lock(name)};
      held.signal.addEventListener('abort', () => say('lost'));
      held.atRisk.addEventListener('abort', () => say('at risk'));`);
    assert.equal(await exited, 0);
    assert.equal(await isHeld(client, name), false);
  });

  test(`${engine}: a wait that was given up is out of the queue when the process ends`, async () => {
    const { client, url } = await clientOf(engine);
    const name = aName();
    const held = await client.lock(name);
    const { exited } = script(`
      ${head(url)}
      const signal = AbortSignal.timeout(300);
      const alive = setInterval(() => {}, 1000);
      await client.lock('${name}', { signal }).catch(() => {});
      clearInterval(alive);`);
    assert.equal(await exited, 0);
    assert.equal((await client.inspect(name)).queue_length, 0);
    await held.release();
  });

  test(`${engine}: SIGKILL leaves what a crash leaves`, async () => {
    const { client, url } = await clientOf(engine);
    const name = aName();
    const { child, line, exited } = script(`
      ${head(url)}
      globalThis.held = ${lock(name)};
      setInterval(() => {}, 1000);
      say('held');`);
    assert.equal(await line(), 'held');
    child.kill('SIGKILL');
    assert.equal(await exited, 'SIGKILL');
    // The engine of one machine sees the end of the process; the others wait for the lease.
    if (engine === 'local') await (await client.lock(name, { wait: SOON })).release();
    else assert.equal(await isHeld(client, name), true);
  });
}

test('a request that waits keeps the process alive', async () => {
  const { client, url } = await clientOf('redis');
  const name = aName();
  const held = await client.lock(name);
  const { line, exited } = script(`${head(url)}
    setTimeout(() => say('waits'), 200);
    await ${lock(name).replace('await ', '')};
    say('held');`);
  assert.equal(await line(), 'waits');
  await held.release();
  assert.equal(await line(), 'held');
  assert.equal(await exited, 0);
  assert.equal(await isHeld(client, name), false);
});

test('after beforeExit a program may go on', async () => {
  const { client, url } = await clientOf('redis');
  const name = aName();
  const { line, exited } = script(`
    ${head(url)}
    globalThis.held = ${lock(name)};
    process.once('beforeExit', async () => {
      await held.release();
      await client.using('${name}', () => say('again'));
      say(String(held.isValid));
    });`);
  assert.equal(await line(), 'again');
  assert.equal(await line(), 'false');
  assert.equal(await exited, 0);
  assert.equal(await isHeld(client, name), false);
});

test('process.exit ends a process that holds, at once', async () => {
  const { client, url } = await clientOf('local');
  const name = aName();
  const { exited } = script(`
    ${head(url)}
    globalThis.held = ${lock(name)};
    void client.lock('${name}').catch(() => {});
    setTimeout(() => process.exit(7), 100);`);
  assert.equal(await exited, 7);
  await (await client.lock(name, { wait: SOON })).release();
});

/** A loop of a script that collects garbage until a condition holds. */
const collect = (until) => `
  for (let round = 0; ${until}; round += 1) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }`;

test('a lock that nobody has is given back, with a warning', async () => {
  const { client, url } = await clientOf('redis');
  const name = aName();
  const { line, exited } = script(
    `${head(url)}
    process.on('warning', ({ name, message }) => say(name + ': ' + message));
    await (async () => { ${lock(name)}; })();
    ${collect(`(await client.inspect('${name}')).held`)}
    say('free');`,
    { flags: ['--expose-gc', '--no-warnings'] },
  );
  const lines = [await line(), await line()];
  const warning = lines.find((line) => line !== 'free');
  assert.ok(lines.includes('free'));
  assert.ok(warning.startsWith(`HoldlineWarning: the lock "${name}" was given back`), warning);
  assert.equal(await exited, 0);
  assert.equal(await isHeld(client, name), false);
});

for (const [what, holds] of [
  ['the signal of a lock is waited for', (name) => `(${lock(name)}).signal.onabort = () => {};`],
  ['the risk of a lock is waited for', (name) => `(${lock(name)}).atRisk.onabort = () => {};`],
  ['a job runs', (name) => `client.using('${name}', () => new Promise(() => {}));`],
]) {
  test(`${what}: it is no garbage, and given back at the end`, async () => {
    const { client, url } = await clientOf('redis');
    const name = aName();
    const { line, exited } = script(
      `${head(url)}
      await (async () => { ${holds(name)} })();
      ${collect('round < 200')}
      say(String((await client.inspect('${name}')).held));`,
      { flags: ['--expose-gc'] },
    );
    assert.equal(await line(), 'true');
    assert.equal(await exited, 0);
    assert.equal(await isHeld(client, name), false);
  });
}

/** A worker that runs a module of this text. `say` posts a message. */
function worker(url, text) {
  const code = `
    import { parentPort } from 'node:worker_threads';
    import { connect } from ${JSON.stringify(packageFile)};
    const say = (word) => parentPort.postMessage(word);
    ${head(url)}
    ${text}`;
  const made = new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`));
  const messages = [];
  made.on('message', (message) => messages.push(message));
  const failed = new Promise((_, reject) => made.once('error', reject));
  const says = (word) => Promise.race([eventually(() => messages.includes(word)), failed]);
  return { made, says };
}

for (const engine of ['local', 'redis', 'memory']) {
  test(`${engine}: a worker that is terminated gives back what it holds and waits for`, async () => {
    const { client, url } = await clientOf(engine);
    const names = [aName(), aName()];
    const held = await client.lock(names[1]);
    const { made, says } = worker(
      url,
      `globalThis.held = ${lock(names[0])};
      held.signal.addEventListener('abort', () => say('lost'));
      void client.lock('${names[1]}').catch(() => {});
      say('held');
      setInterval(() => {}, 1000);`,
    );
    await says('held');
    assert.equal(await client.tryLock(names[0]), null);
    await eventually(async () => (await client.inspect(names[1])).queue_length === 1);
    await made.terminate();
    // Its lease is far longer than this test.
    await (await client.lock(names[0], { wait: SOON })).release();
    await eventually(async () => (await client.inspect(names[1])).queue_length === 0);
    await held.release();
  });
}

test('a worker that ends by itself gives back what it holds', async () => {
  const { client, url } = await clientOf('redis');
  const name = aName();
  const { made, says } = worker(url, `globalThis.held = ${lock(name)}; say('held');`);
  const exited = once(made, 'exit');
  await says('held');
  assert.deepEqual(await exited, [0]);
  assert.equal(await isHeld(client, name), false);
});

test('workers exclude each other', async () => {
  const { client, url } = await clientOf('redis');
  const name = aName();
  const counter = new Int32Array(new SharedArrayBuffer(8));
  const code = `
    import { workerData } from 'node:worker_threads';
    import { connect } from ${JSON.stringify(packageFile)};
    const client = await connect(${JSON.stringify(url)});
    for (let round = 0; round < 25; round += 1) {
      await client.using('${name}', async () => {
        const seen = workerData[0];
        await new Promise((resolve) => setImmediate(resolve));
        workerData[0] = seen + 1;
      });
    }`;
  const address = new URL(`data:text/javascript,${encodeURIComponent(code)}`);
  const ends = Array.from({ length: 4 }, () => {
    const made = new Worker(address, { workerData: counter });
    return new Promise((resolve, reject) => {
      made.once('exit', resolve);
      made.once('error', reject);
    });
  });
  assert.deepEqual(await Promise.all(ends), [0, 0, 0, 0]);
  assert.equal(counter[0], 100);
  assert.equal(await isHeld(client, name), false);
});
