'use strict';

const { Client, connect } = require('./lib/client.cjs');
const { classes } = require('./lib/errors.cjs');
const { Lock, Leadership, Locks, SlotLock } = require('./lib/locks.cjs');

module.exports = { connect, Client, Lock, Leadership, Locks, SlotLock, ...classes };
