// The URL of the server to which clients of ioredis or node-redis lead, for the drop-in of redlock.
'use strict';

const OTHERWISE = 'pass the URL of Holdline in place of the clients';
/** What a client may have set for TLS, and its URL cannot say. */
const TLS = ['ca', 'cert', 'key', 'pfx', 'servername', 'rejectUnauthorized', 'checkServerIdentity'];

/** Returns the URL of clients, or the one that was given in place of them. */
function urlOf(clients) {
  if (clients.some((client) => typeof client === 'string')) {
    if (clients.length === 1) return clients[0];
    throw new TypeError('one URL stands in place of all clients: `redlock://one,two,three`');
  }
  const servers = clients.map(serverOf);
  const [first] = servers;
  const fields = ['user', 'password', 'db', 'tls', 'prefix'];
  for (const server of servers.slice(1)) {
    const other = fields.find((field) => server[field] !== first[field]);
    if (other === undefined) continue;
    const says = `the clients differ in \`${other}\`, and all servers need the same`;
    throw new TypeError(`${says}: list independent servers, or ${OTHERWISE}`);
  }
  const places = servers.map(({ place }) => place);
  const twice = places.find((place, number) => places.indexOf(place) !== number);
  if (twice) throw new TypeError(`two clients lead to ${twice}: list independent servers`);
  const template = encodeURIComponent(first.prefix).replaceAll('%3A', ':');
  const keys = `dialect=plain&key_template=${template}{name}`;
  const login = first.user || first.password ? `${quoted(first.user)}:${quoted(first.password)}@` : '';
  if (clients.length > 1) {
    if (first.isSocket) throw new TypeError('sockets are of one machine: list independent servers');
    const scheme = first.tls ? 'redlocks' : 'redlock';
    return `${scheme}://${login}${places.join(',')}/${first.db}?${keys}&fencing=off`;
  }
  if (first.isSocket) return `redis+unix://${login}${first.place}?db=${first.db}&${keys}`;
  return `${first.tls ? 'rediss' : 'redis'}://${login}${first.place}/${first.db}?${keys}`;
}

/** The server of one client. */
function serverOf(client) {
  const options = client?.options;
  if (client?.isCluster || options?.sentinels || options?.sentinelRootNodes) {
    throw new TypeError('redlock on Sentinels or a cluster: use `connect` of Holdline, with `redis-cluster://`');
  }
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
    if (credentialsProvider && !user && !password) {
      throw new TypeError(`a client with a provider of credentials has no URL: ${OTHERWISE}`);
    }
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
  if (custom) throw new TypeError(`\`tls.${custom}\` has no place in a URL: ${OTHERWISE}, with \`ca=\` and so on`);
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

function quoted(text) {
  return encodeURIComponent(text);
}

module.exports = { urlOf };
