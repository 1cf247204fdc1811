#!/bin/sh
# A shop that does all right: the key is claimed by one atomic step before the effect, with its payload; what was cut off
# is said to be unknown.
shop=${0##*/}
. "${0%/*}/lib.sh"
case $command in
  "cancel-order --help") echo "Usage: shop cancel-order ID" ;;
  *--help)
    full_help
    [ "$shop" = silent.sh ] && printf '\nCommands:\n  cancel-order  Cancel an order\n' ;;
  create-order)
    if [ -n "$dry" ]; then echo '{"effect":"would_create"}'; exit; fi
    if mkdir "key-$key" 2>/dev/null; then
      echo "$amount" >"key-$key/payload"; sleep 0.1
      act; sleep 0.1
      : >"key-$key/done"; echo '{"effect":"created"}'; exit
    fi
    if [ -e "key-$key/payload" ] && [ "$(cat "key-$key/payload")" != "$amount" ]; then
      echo '{"effect":null,"error":{"code":"KEY_REUSED"}}'; exit 6
    fi
    [ -e "key-$key/done" ] && { echo '{"effect":"noop"}'; exit; }
    echo '{"effect":null,"error":{"code":"OUTCOME_UNKNOWN"}}'; exit 16 ;;
esac
