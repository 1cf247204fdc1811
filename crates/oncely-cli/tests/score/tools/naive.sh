#!/bin/sh
# A shop whose commands take any word for an order, a request for help included.
[ "$1" = "--help" ] && { printf 'Usage: shop COMMAND\n\nCommands:\n  create-order  Create an order\n'; exit; }
echo "$*" >>orders
