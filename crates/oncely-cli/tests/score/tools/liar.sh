#!/bin/sh
# A shop that names both flags and answers as if it kept its word, and acts every time.
. "${0%/*}/lib.sh"
case $command in
  *--help) full_help ;;
  create-order)
    act
    [ -n "$dry" ] && { echo '{"effect":"would_create"}'; exit; }
    [ -e "said-$key" ] && { echo '{"effect":"noop"}'; exit; }
    : >"said-$key"; echo '{"effect":"created"}' ;;
esac
