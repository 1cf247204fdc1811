#!/bin/sh
# A shop that answers at once, and acts a little later and every time, in a process of its own. It answers only when that
# process has left the group, which is ended with the shop.
. "${0%/*}/lib.sh"
case $command in
  *--help) echo "Usage: shop [--help] create-order --amount N" ;;
  create-order)
    mkfifo "left-$$"
    setsid sh -c "echo yes >left-$$; sleep 0.2; echo $amount >>orders" >/dev/null 2>&1 &
    read -r _ <"left-$$"; rm "left-$$" ;;
esac
