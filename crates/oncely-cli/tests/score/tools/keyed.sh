#!/bin/sh
# A shop that remembers keys, one call after the other, and has no dry run.
. "${0%/*}/lib.sh"
case $command in
  *--help) echo "Usage: shop [--help] create-order --amount N [--idempotency-key KEY]" ;;
  create-order) [ -e "key-$key" ] || { act; : >"key-$key"; }; echo "order placed" ;;
esac
