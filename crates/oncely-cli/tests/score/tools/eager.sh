#!/bin/sh
# A shop that acts whatever it is asked, even for its help.
amount=1; echo "$amount" >>orders; echo "--help --dry-run --idempotency-key"
