#!/bin/sh
# A shop without any protection.
. "${0%/*}/lib.sh"
case $command in
  *--help) echo "Usage: shop [--help] create-order --amount N" ;;
  create-order) act; echo "order placed" ;;
esac
