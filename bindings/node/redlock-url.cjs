// The URL of the servers to which clients of ioredis or node-redis lead, for the drop-in of redlock.
'use strict';

const OTHERWISE = 'pass the URL of Holdline in place of the clients';
/** What a client may have set for TLS, and its URL cannot say. */
const TLS = ['ca', 'cert', 'key', 'pfx', 'servername', 'rejectUnauthorized', 'checkServerIdentity'];
/** What servers of one URL have in common. */
const SHARED = ['user', 'password', 'db', 'tls', 'prefix'];

/** Returns the URL of clients, or the one that was given in place of them. */
function urlOf(clients) {
  if (clients.some((client) => typeof client === 'string')) {
    if (clients.length === 1) return clients[0];
    throw new TypeError('one URL stands in place of all clients: `redlock://one,two,three`');
  }
  const [group] = clients.map(groupOf).filter(Boolean);
  if (group) {
    if (clients.length === 1) return group();
    throw new TypeError('a cluster or a group of Sentinels is a client alone: list independent servers');
  }
  const servers = clients.map(serverOf);
  const first = alike(servers, 'clients');
  const places = servers.map(({ place }) => place);
  const twice = places.find((place, number) => places.indexOf(place) !== number);
  if (twice) throw new TypeError(`two clients lead to ${twice}: list independent servers`);
  if (clients.length > 1) {
    if (first.isSocket) throw new TypeError('sockets are of one machine: list independent servers');
    const scheme = first.tls ? 'redlocks' : 'redlock';
    return `${scheme}://${loginOf(first)}${places.join(',')}/${first.db}?${keysOf(first)}&fencing=off`;
  }
  if (first.isSocket) return `redis+unix://${loginOf(first)}${first.place}?db=${first.db}&${keysOf(first)}`;
  return `${first.tls ? 'rediss' : 'redis'}://${loginOf(first)}${first.place}/${first.db}?${keysOf(first)}`;
}

/** What makes the URL of a client that leads to a cluster or to Sentinels; undefined for others. */
function groupOf(client) {
  if (client?.isCluster) return () => urlOfCluster(ofIoredisCluster(client));
  if (client?._options?.rootNodes) return () => urlOfCluster(ofNodeRedisCluster(client._options));
  if (client?.options?.sentinels) return () => urlOfSentinels(client.options);
  if (typeof client?.getSentinelNode === 'function') {
    return () => {
      const says = 'a Sentinel client of node-redis does not show where it leads';
      throw new TypeError(`${says}: ${OTHERWISE}, \`redis+sentinel://one,two,three/NAME?dialect=plain&key_template={name}\``);
    };
  }
  return undefined;
}

/** Its nodes have the options of the cluster, and those of their own. */
function ofIoredisCluster({ startupNodes, options }) {
  const { redisOptions = {}, keyPrefix: prefix, natMap, useSRVRecords } = options;
  refuse('natMap', natMap);
  refuse('useSRVRecords', useSRVRecords);
  return startupNodes.map((node) => {
    const own = { host: '127.0.0.1', ...redisOptions, ...nodeOf(node) };
    const { host, port, username: user, password, tls } = own;
    return server({ host, port, user, password, tls, prefix: prefix ?? redisOptions.keyPrefix });
  });
}

/** A startup node of ioredis: a port, an address, or options. */
function nodeOf(node) {
  if (typeof node === 'number') return { port: node };
  return typeof node === 'string' ? parsed(node) : node;
}

function ofNodeRedisCluster({ rootNodes, defaults = {}, nodeAddressMap }) {
  refuse('nodeAddressMap', nodeAddressMap);
  return rootNodes.map((node) => {
    const { url, username, password, socket = {}, ...more } = node;
    refuse('credentialsProvider', more.credentialsProvider ?? defaults.credentialsProvider);
    const given = url ? parsed(url) : {};
    const own = { ...defaults.socket, ...given, ...socket };
    const user = username ?? given.username ?? defaults.username;
    const secret = password ?? given.password ?? defaults.password;
    return server({ host: own.host, port: own.port, user, password: secret, tls: own.tls && { ...own } });
  });
}

function urlOfCluster(nodes) {
  const first = alike(nodes, 'nodes');
  const places = new Set(nodes.map(({ place }) => place));
  const scheme = first.tls ? 'rediss-cluster' : 'redis-cluster';
  return `${scheme}://${loginOf(first)}${[...places].join(',')}?${keysOf(first)}&fencing=off`;
}

/** The group of an ioredis client. */
function urlOfSentinels(options) {
  const { sentinels, name, db, username: user, password, keyPrefix: prefix, natMap, role } = options;
  refuse('natMap', natMap);
  refuse('sentinelPassword', options.sentinelPassword, 'put it into a file, for `sentinel_password_file=`');
  if (role === 'slave') throw new TypeError("`role` is 'slave', and locks are on the master: leave it out");
  const tls = options.enableTLSForSentinelMode ? options.tls : undefined;
  if (Boolean(tls) !== Boolean(options.sentinelTLS)) {
    const says = 'a URL has TLS for Sentinels and servers, or for none';
    throw new TypeError(`\`sentinelTLS\` and \`enableTLSForSentinelMode\` differ, and ${says}: set both`);
  }
  const known = { port: 26379, db, user, password, prefix };
  const nodes = sentinels.map((node) => server({ ...known, ...node, tls: options.sentinelTLS }));
  const servers = server({ ...known, tls });
  const places = new Set(nodes.map(({ place }) => place));
  const scheme = servers.tls ? 'rediss+sentinel' : 'redis+sentinel';
  const where = `${[...places].join(',')}/${quoted(name)}/${servers.db}`;
  return `${scheme}://${loginOf(servers)}${where}?${keysOf(servers)}`;
}

/** The server of one client. */
function serverOf(client) {
  const options = client?.options;
  if (options === null || typeof options !== 'object') {
    throw new TypeError(`not a client of ioredis or node-redis: ${OTHERWISE}`);
  }
  if ('connection_options' in client) {
    const { host, port, path } = client.connection_options;
    const { user, password, auth_pass: old, tls, prefix } = options;
    return server({ host, port, path, db: client.selected_db ?? options.db, user, password: password ?? old, tls, prefix });
  }
  if (typeof client.evalSha === 'function') {
    const { username: user, password, database: db, socket = {}, credentialsProvider } = options;
    if (!user && !password) refuse('credentialsProvider', credentialsProvider);
    const { host, port, path } = socket;
    return server({ host, port, path, db, user, password, tls: socket.tls && { ...socket } });
  }
  const { host, port, path, db, username: user, password, tls, keyPrefix: prefix } = options;
  return server({ host, port, path, db, user, password, tls, prefix });
}

function server({ host, port, path, db, user, password, tls, prefix }) {
  const known = { host: host ?? 'localhost', port: port ?? 6379 };
  const isCustom = (field) => tls?.[field] !== undefined && !(field === 'servername' && tls[field] === known.host);
  const custom = TLS.find(isCustom);
  refuse(`tls.${custom}`, custom, `${OTHERWISE}, with \`ca=\` and so on`);
  const name = known.host.includes(':') ? `[${known.host}]` : known.host;
  return {
    place: path ? encodeURI(path) : `${name}:${known.port}`,
    isSocket: Boolean(path),
    db: Number(db ?? 0),
    user: user ?? '',
    password: password ?? '',
    tls: Boolean(tls),
    prefix: prefix ?? '',
  };
}

/** Returns the first of these servers, which all have what a URL says once. */
function alike(servers, what) {
  const [first] = servers;
  if (first === undefined) throw new TypeError(`there are no ${what}: ${OTHERWISE}`);
  for (const server of servers.slice(1)) {
    const other = SHARED.find((field) => server[field] !== first[field]);
    if (other === undefined) continue;
    const says = `the ${what} differ in \`${other}\`, and all servers need the same`;
    throw new TypeError(`${says}: list independent servers, or ${OTHERWISE}`);
  }
  return first;
}

function refuse(field, value, fix = OTHERWISE) {
  if (value) throw new TypeError(`\`${field}\` has no place in a URL: ${fix}`);
}

/** What the URL of a node says: `redis://user:password@host:port`, or less. */
function parsed(text) {
  const { protocol, hostname, port, username, password } = new URL(text.includes('://') ? text : `redis://${text}`);
  const known = {
    host: hostname.replace(/^\[|\]$/g, ''),
    port: port && Number(port),
    username: decodeURIComponent(username),
    password: decodeURIComponent(password),
    tls: protocol === 'rediss:' && {},
  };
  return Object.fromEntries(Object.entries(known).filter(([, value]) => value));
}

function loginOf({ user, password }) {
  return user || password ? `${quoted(user)}:${quoted(password)}@` : '';
}

function keysOf({ prefix }) {
  return `dialect=plain&key_template=${quoted(prefix).replaceAll('%3A', ':')}{name}`;
}

function quoted(text) {
  return encodeURIComponent(text);
}

module.exports = { urlOf };
