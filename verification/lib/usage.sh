# shellcheck shell=bash
# Sourced by the scripts beside it: help, which is the comment at the script's head, and wrong
# arguments, which are exit code 2.

# Prints the script's head and ends it, if its first argument asks for help.
help_if_asked() {
    case ${1:-} in
    -h | --help)
        head_comment
        exit 0
        ;;
    esac
}

# Ends the script if it has more than $1 arguments.
at_most() {
    local most=$1
    shift
    (($# <= most)) || wrong_usage "$# arguments, expected $most at most"
}

wrong_usage() {
    printf '%s: %s\n\n' "${0##*/}" "$1" >&2
    head_comment >&2
    exit 2
}

# The lines behind the first, up to the first that is no comment.
head_comment() {
    sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$script"
}

# Found from this file: a script may have changed its folder since it was called.
script=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/${BASH_SOURCE[1]##*/}
