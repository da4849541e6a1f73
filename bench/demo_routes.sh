#!/bin/bash
# Records which experts the demo model uses while it answers questions, for `sluice cache-sim` and
# `sluice bench --route-trace`.
#
#   bench/demo_routes.sh INSTALL TRACE     the install of demo/dictionary-moe, and the file to add to
#
# $SLUICE is the program (default build/sluice). Every question is a session of its own; the caches that are
# simulated later are shared by all of them, as an engine's is. Answers are greedy, so a trace can be made again.
set -euo pipefail
SLUICE=${SLUICE:-build/sluice}
install=$1 trace=$2

WORDS="anchor bridge candle desert engine forest garden hammer island jungle kitchen lantern mountain needle ocean
piano quarry river saddle temple umbrella valley window yacht zebra lighthouse violin guitar volcano elephant computer
democracy freedom dog happy hot huge serendipity photosynthesis doctor teacher bread butter cheese winter summer apple
orange tiger eagle whale copper silver gold paper pencil school church market battle soldier king queen castle wheel
clock mirror shadow silence anger laughter honest brave quick gentle heavy narrow"
FORMS=("What does %s mean?" "What kind of thing is a %s?" "What is another word for %s?" "Use %s in a sentence.")

i=0
for word in $WORDS; do
    # shellcheck disable=SC2059  # the format is one of ours
    printf "${FORMS[i++ % 4]}" "$word" |
        "$SLUICE" run "$install" --greedy --quiet --verify receipt --max-tokens 60 --record-routes "$trace" >/dev/null
done
