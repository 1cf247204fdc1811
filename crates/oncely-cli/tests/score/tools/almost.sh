#!/bin/sh
# A shop that does all right but for one thing, which FAULT names: each of them looks like a 3 to a careless eye.
. "${0%/*}/lib.sh"
say() { if [ "$FAULT" = noop ]; then echo '{"effect":"noop"}'; else echo "{\"effect\":\"$1\"}"; fi; }
case $command in
  "history --help") printf 'Usage: shop history\n\nCommands:\n  clear  Forget all\n' ;;
  "history clear --help" | "deleteOrder --help") echo "Usage: shop ... ID" ;;
  *--help)
    if [ "$FAULT" = nohelp ]; then full_help | grep -v -e --help; else full_help; fi
    case $FAULT in
      camel) printf '\nCommands:\n  deleteOrder  Delete an order\n' ;;
      group) printf '\nCommands:\n  history  What has happened\n' ;;
      manifest) printf '\nCommands:\n  manifest  Blueprint of all, sent to the printer\n' ;;
    esac ;;
  manifest) echo manifest >>orders ;;
  create-order)
    if [ -n "$dry" ]; then say would_create; exit; fi
    [ "$FAULT" = picky ] && [ "$amount" -gt 100 ] && exit 2
    if mkdir "key-$key" 2>/dev/null; then
      echo "$amount" >"key-$key/payload"; act; sleep 0.1; : >"key-$key/done"; say created; exit
    fi
    if [ "$FAULT" != picky ] && [ -e "key-$key/payload" ] && [ "$(cat "key-$key/payload")" != "$amount" ]; then
      case $FAULT in hang) exec sleep 98763 ;; crash) kill -ABRT $$ ;; esac
      exit 6
    fi
    [ -e "key-$key/done" ] && { say noop; exit; }
    exit 16 ;;
esac
