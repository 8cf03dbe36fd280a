#!/bin/bash
# Starts holdline.service under a systemd of its own, with every restriction of the unit, and asks
# the server over TLS and over its socket. Usage, as root: packaging/debian/try-unit.sh BINARY
#
# systemd runs in namespaces, with a root of its own: a tmpfs, in which of this machine there is only
# /usr, and that is not written to. A systemd that boots in the machine's own files would empty /tmp.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The root of the namespaces. Runs inside them, and becomes systemd.
boot() {
  local place=$1
  if [ $$ -ne 1 ]; then
    echo "try-unit: boots in namespaces of its own only" >&2
    exit 1
  fi
  mount --make-rprivate /
  ip link set lo up
  mkdir "$place/root"
  mount -t tmpfs tmpfs "$place/root"
  cd "$place/root"
  mkdir -p usr upper work etc/systemd/system etc/holdline var/{lib,log} run tmp dev/{shm,pts} proc sys root old
  mount -t overlay overlay -o "lowerdir=/usr,upperdir=$PWD/upper,workdir=$PWD/work" usr
  local link node target
  for link in bin sbin lib lib64; do
    if [ -L "/$link" ]; then cp -a "/$link" "$link"; fi
  done
  cp /etc/{passwd,group,nsswitch.conf,ld.so.cache} etc/
  echo 0123456789abcdef0123456789abcdef > etc/machine-id
  cp "$place/holdline" usr/bin/holdline
  cp "$place"/{server.toml,tls.crt,tls.key} etc/holdline/
  chmod 600 etc/holdline/tls.key
  cp "$place/holdline.service" etc/systemd/system/
  # Nothing of an ordinary boot.
  for target in sysinit basic network-online shutdown try; do
    printf '[Unit]\nDefaultDependencies=no\n' > "etc/systemd/system/$target.target"
  done
  echo 'Wants=holdline.service' >> etc/systemd/system/try.target
  for node in null zero full random urandom; do
    : > "dev/$node"
    mount --bind "/dev/$node" "dev/$node"
  done
  : > dev/console
  mount --bind /dev/null dev/console
  mount -t tmpfs tmpfs run
  mount -t proc proc proc
  mount --bind proc/sys proc/sys
  mount -o remount,ro,bind proc/sys
  mount -t sysfs -o ro sysfs sys
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  pivot_root . old
  cd /
  umount -l old
  # systemd may write to whatever it sees.
  if [ -e "$place" ] || [ "$(stat -f -c %T /)" != tmpfs ] || [ -w /proc/sys/kernel/core_pattern ]; then
    echo "try-unit: the root is not apart from the machine" >&2
    exit 1
  fi
  # Credentials are mounted for the service from outside of it.
  mount --make-rshared /
  export container=holdline
  exec setpriv --bounding-set=-sys_time,-sys_module,-sys_boot,-sys_rawio,-mknod \
    /lib/systemd/systemd --system --unit=try.target --log-target=null --show-status=no
}

if [ "${1:-}" = boot ]; then
  boot "$2"
fi

binary=$(realpath "${1:?usage: try-unit.sh BINARY}")
if [ "$(id -u)" -ne 0 ]; then
  echo "try-unit: needs root: systemd makes namespaces and users" >&2
  exit 77
fi
place=$(mktemp -d)
cgroup=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)/try-unit-$$
mkdir "$cgroup"
booted=
clean_up() {
  if [ -n "$booted" ]; then
    kill -9 "$booted" 2> /dev/null || true
    wait "$booted" 2> /dev/null || true
  fi
  # The last processes of the namespaces may still be ending.
  for _ in $(seq 50); do
    find "$cgroup" -depth -type d -exec rmdir {} + 2> /dev/null || true
    if [ ! -e "$cgroup" ]; then break; fi
    sleep 0.1
  done
  rm -rf --one-file-system "$place"
}
trap clean_up EXIT

cp "$binary" "$place/holdline"
cp "$here/holdline.service" "$place/"
# The settings of the package, with everything that they have as an example.
sed -e 's/^# \(audit_file\|\[server\|cert\|key\)/\1/' "$here/server.toml" > "$place/server.toml"
cat >> "$place/server.toml" << 'SETTINGS'
[server.socket]
path = "/run/holdline/server.sock"
users = [{ name = "root", uid = 0, rights = ["admin"] }]
[[server.tokens]]
name = "ci"
sha256 = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0"
rights = ["admin"]
SETTINGS
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$place/tls.key" -out "$place/tls.crt" 2> /dev/null

(
  echo "$BASHPID" > "$cgroup/cgroup.procs"
  exec unshare --mount --pid --ipc --uts --net --cgroup --fork --kill-child --mount-proc \
    "${BASH_SOURCE[0]}" boot "$place"
) < /dev/null &
booted=$!

inside() { nsenter --target "$systemd" --mount --pid --net --ipc --uts "$@"; }
property() { inside systemctl show holdline.service --property "$1" --value; }
fail() {
  echo "try-unit: $*" >&2
  inside journalctl --unit holdline --no-pager --output cat >&2 || true
  exit 1
}
expect() { # what it is, expected, found
  if [ "$2" != "$3" ]; then fail "$1: expected $2, found $3"; fi
  echo "try-unit: $1: $3"
}

systemd=
for _ in $(seq 150); do
  systemd=$(pgrep -P "$booted" || true)
  if [ -n "$systemd" ] && [ "$(property ActiveState 2> /dev/null)" = active ]; then
    if [ -n "$(inside find /run/holdline -name server.sock 2> /dev/null)" ]; then break; fi
  fi
  sleep 0.2
done
expect "the unit" active "$(property ActiveState)"
server=$(property MainPID)
status() { inside sed -n "s/^$1:\t*//p" "/proc/$server/status"; }
expect "capabilities" 0000000000000000 "$(status CapBnd)"
expect "no new privileges" 1 "$(status NoNewPrivs)"
expect "a filter of system calls" 2 "$(status Seccomp)"
if [ "$(status Uid | cut -f1)" = 0 ]; then fail "the server runs as root"; fi

ask() { inside curl --silent --output /dev/null --write-out '%{http_code}' "$@"; }
inside cat /etc/holdline/tls.crt > "$place/ca.crt"
over_tls=(--cacert /etc/holdline/tls.crt --header "Authorization: Bearer s3cret")
expect "a lock over TLS, with a key that only root can read" 200 \
  "$(ask "${over_tls[@]}" -X POST https://localhost:7654/v1/locks/a)"
expect "nobody over TLS" 401 "$(ask --cacert /etc/holdline/tls.crt https://localhost:7654/v1/locks)"
expect "a lock over the socket, as root" 200 \
  "$(ask --unix-socket /run/holdline/server.sock -X POST http://localhost/v1/locks/b)"
expect "the audit file" 600 "$(inside stat -c %a /var/log/holdline/audit.jsonl)"
expect "the locks, on the disk" holdline "$(inside stat -c %U /var/lib/holdline/locks/)"
expect "a job over the socket" done "$(inside /usr/bin/holdline \
  --url http+unix://%2Frun%2Fholdline%2Fserver.sock run c -- echo done)"
inside systemctl reload holdline.service
for _ in $(seq 50); do
  if inside journalctl --unit holdline --no-pager | grep -q 'was read again'; then break; fi
  sleep 0.2
done
inside journalctl --unit holdline --no-pager | grep -q 'was read again' || fail "it was not reloaded"
echo "try-unit: reloaded"
inside systemctl stop holdline.service
expect "its end" success "$(property Result)"
