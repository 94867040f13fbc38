#!/usr/bin/env bash
# Runs a log on the simulated disk, kills it and takes its power, and checks G1 to G7 each time.
#
#   verification/powerloss.sh               20 000 seeds, then every call of every piece of work
#   verification/powerloss.sh SEEDS [FIRST] so many seeds, from FIRST on
#
# Prints progress, the number of distinct crash points that were reached, and the points. Exits
# non-zero at the first violation, with the seed and the command that runs it again.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
-h | --help)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
export PALISADE_SEEDS="${1:-20000}"
export PALISADE_FIRST_SEED="${2:-0}"
export PALISADE_POINTS=1
# Optimised, without the long link-time optimisation of a release.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
test=(cargo test --locked --release -p palisade --test powerloss)
"${test[@]}" -- --nocapture seeds_of_random_crashes
unset PALISADE_FIRST_SEED
# All three levels of interrupted recoveries: some million opens, a core for each kind of disk.
"${test[@]}" -- --nocapture every_call
