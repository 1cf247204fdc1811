#!/bin/sh
# A shop in which the same order cannot be placed twice, but the second time is an error.
. "${0%/*}/lib.sh"
case $command in
  *--help) echo "Usage: shop [--help] create-order --amount N" ;;
  create-order) if grep -qx "$amount" orders; then echo "exists" >&2; exit 1; else act; fi ;;
esac
