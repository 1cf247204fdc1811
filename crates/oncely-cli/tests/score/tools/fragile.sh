#!/bin/sh
# A shop that does right by careful callers: dry run, keys, an effect in some answers. But it looks before it leaps (two at
# once both leap), writes the key after the effect (a kill between them doubles), and takes a key for any payload.
. "${0%/*}/lib.sh"
case $command in
  *--help) full_help ;;
  create-order)
    [ -n "$dry" ] && { echo "would place an order"; exit; }
    if [ -e "key-$key" ]; then echo '{"effect":"noop"}'; exit; fi
    sleep 0.2; act; sleep 0.2; : >"key-$key"
    echo '{"effect":"created"}' ;;
esac
