// A program of redlock 5, in CommonJS.
import Redlock, { ExecutionError, type Settings } from 'holdline/redlock';
import Same = require('holdline/redlock');

const settings: Partial<Settings> = { retryCount: 0 };
const redlock: Redlock = new Same.default([{}], settings);
redlock.using(['a'], 5000, async (signal) => signal.aborted).catch((error) => error instanceof ExecutionError);
