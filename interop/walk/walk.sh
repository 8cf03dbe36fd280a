#!/bin/sh
# Holds a lock of a Holdline server with nothing but curl: session, lock, renew, fence, release.
# Usage: walk.sh URL NAME
set -eu
url=$1 name=$2
mark=$(mktemp)
trap 'rm -f "$mark"' EXIT

# Prints a text field, or a number, of the JSON on standard input.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }
call() { curl --silent --show-error --fail-with-body --header 'Content-Type: application/json' "$@"; }

# The resource: it accepts a write only if no larger token was seen before.
write() {
    [ "$1" -ge "$(cat "$mark")" ] || { echo "refused token $1"; return 0; }
    echo "$1" > "$mark"
    echo "wrote with a token"
}
echo 0 > "$mark"

session=$(call --data '{"duration_ms": 30000}' "$url/v1/sessions" | field session)
lease=$(call --data "{\"session\": \"$session\", \"wait_ms\": 10000}" "$url/v1/locks/$name")
token=$(echo "$lease" | number fencing_token)
echo "locked $name"
echo "$(call --request POST "$url/v1/sessions/$session/heartbeat" | field state)"
write "$token"
write 0
call --request DELETE "$url/v1/sessions/$session"
echo "released $name"
