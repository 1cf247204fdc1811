#!/bin/sh
# A shop with an honest dry run, and nothing else.
. "${0%/*}/lib.sh"
case $command in
  *--help) echo "Usage: shop [--help] create-order --amount N [--dry-run]" ;;
  create-order) if [ -n "$dry" ]; then echo "would place an order"; else act; echo "order placed"; fi ;;
esac
