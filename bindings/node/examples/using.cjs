// A first lock in a program of CommonJS, and for Node 20, which has no `await using`.
'use strict';

const { connect } = require('holdline');

async function main() {
  const client = await connect('redis://locks.example');
  const pages = await client.using('nightly-report', { wait: '10s' }, async (lock) => {
    return ['sales', 'stock'].map((page) => `${page} by ${lock.name}`);
  });
  console.log(pages.join(', '));
  // => sales by nightly-report, stock by nightly-report
}

main();
