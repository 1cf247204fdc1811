#!/bin/sh
# A shop that does all right, and whose other mutating command knows neither flag.
. "${0%/*}/careful.sh"
