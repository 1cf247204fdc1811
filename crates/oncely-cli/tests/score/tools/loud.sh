#!/bin/sh
# A shop that talks without end, in colours, about secrets.
. "${0%/*}/lib.sh"
case $command in
  *--help) printf 'Usage: shop [--help]\033[2J create-order\n' ;;
  create-order) act; head -c 8000000 /dev/zero | tr '\0' 'x'; printf '\033[2J<b>&"\n' >&2; exit 3 ;;
esac
