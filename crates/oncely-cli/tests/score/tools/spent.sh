#!/bin/sh
# A shop whose dry run changes no order, but uses up the key: the real call after it is taken for a repeat.
. "${0%/*}/lib.sh"
case $command in
  *--help) full_help ;;
  create-order)
    [ -e "key-$key" ] && { echo '{"effect":"noop"}'; exit; }
    : >"key-$key"
    [ -n "$dry" ] && { echo '{"effect":"would_create"}'; exit; }
    act; echo '{"effect":"created"}' ;;
esac
