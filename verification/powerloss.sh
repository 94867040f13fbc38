#!/usr/bin/env bash
# Runs a log on the simulated disk, kills it and takes its power, and checks G1 to G7 each time, and
# G8 where bits rot.
#
#   verification/powerloss.sh               20 000 seeds, then every call of every piece of work
#   verification/powerloss.sh SEEDS [FIRST] so many seeds, from FIRST on, then the same
#
# Prints progress, the number of distinct crash points that were reached, and the points. Exits
# non-zero if there was a violation, with the seeds and the command that runs the first of them
# again.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=lib/usage.sh
source verification/lib/usage.sh
help_if_asked "$@"
at_most 2 "$@"
export PALISADE_SEEDS="${1:-20000}"
export PALISADE_FIRST_SEED="${2:-0}"
[[ $PALISADE_SEEDS =~ ^[1-9][0-9]{0,17}$ ]] ||
    wrong_usage "SEEDS is $PALISADE_SEEDS, expected a number from 1 on"
[[ $PALISADE_FIRST_SEED =~ ^[0-9]{1,18}$ ]] ||
    wrong_usage "FIRST is $PALISADE_FIRST_SEED, expected a number"
export PALISADE_POINTS=1
# Optimised, without the long link-time optimisation of a release.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
test=(cargo test --locked --release -p palisade --test powerloss)
"${test[@]}" -- --nocapture seeds_of_random_crashes
unset PALISADE_FIRST_SEED
# All three levels of interrupted recoveries: some million opens, a core for each kind of disk.
"${test[@]}" -- --nocapture every_call
