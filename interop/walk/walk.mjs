// Holds a lock of a Holdline server with the fetch of Node: session, lock, renew, fence, release.
// Usage: node walk.mjs URL NAME
const [url, name] = process.argv.slice(2);

async function call(method, path, body) {
  const response = await fetch(url + path, {
    method,
    headers: body ? { "Content-Type": "application/json" } : {},
    body: body && JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

// The resource: it accepts a write only if no larger token was seen before. Tokens are below 2^53,
// so a number represents each exactly.
let largest = 0;
function write(token) {
  if (token < largest) return console.log(`refused token ${token}`);
  largest = token;
  console.log("wrote with a token");
}

const { session } = await call("POST", "/v1/sessions", { duration_ms: 30_000 });
const path = `/v1/locks/${encodeURIComponent(name)}`;
const lease = await call("POST", path, { session, wait_ms: 10_000 });
console.log(`locked ${name}`);
// A program that works for long does this every `heartbeat_ms`, and stops working on anything else.
const beat = await call("POST", `/v1/sessions/${session}/heartbeat`);
console.log(beat.leases[0].state);
write(lease.fencing_token);
write(0);
await call("DELETE", `/v1/sessions/${session}`);
console.log(`released ${name}`);
