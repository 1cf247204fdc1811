#!/bin/sh
# A shop that leaves a process behind, outside of its group, and never ends by itself.
. "${0%/*}/lib.sh"
case $command in
  *--help) echo "Usage: shop [--help] create-order --amount N" ;;
  create-order) act; setsid sleep "$amount" & sleep "$amount" ;;
esac
