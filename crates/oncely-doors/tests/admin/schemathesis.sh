#!/usr/bin/env bash
# Drives the admin API of a real `oncely serve` on a throw-away ledger with everything that its OpenAPI document allows,
# and much that it does not. Started by ./test; needs the path of schemathesis and of oncely.
#
#   [SEED=N] schemathesis.sh SCHEMATHESIS ONCELY [EXAMPLES]
set -euo pipefail
schemathesis=$1 oncely=$2 examples=${3:-25}
home=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf "$home"
}
trap finish EXIT

cat >"$home/oncely.toml" <<'END'
[defaults]
wait_for = "0ms"

[[route]]
match = "/pay/**"
upstream = "http://127.0.0.1:9"
provider = "modern-treasury"
methods = ["POST", "PUT"]
tenant = { header = "X-Tenant" }
END
export HOME=$home ONCELY_ADMIN_TOKEN=schemathesis-0123456789
cd "$home"
mkfifo ready
"$oncely" --store "$home/ledger.db" serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream http://127.0.0.1:9 >ready &
server=$!
read -r line <ready
address=$(printf '%s' "$line" | sed -E 's/.*"admin":"([^"]*)".*/\1/')

# The audit log as it grows has no end, so its stream is tested in Rust.
"$schemathesis" run "$address/openapi.json" --url "$address" \
  -H "Authorization: Bearer $ONCELY_ADMIN_TOKEN" --exclude-path /v1/events/stream \
  --checks all --max-examples "$examples" --continue-on-failure --workers 1 \
  --seed "${SEED:-20261116}"
kill -0 "$server" # it lives, whatever was sent
