#!/bin/sh
# Runs a cron job on one of several machines. Each machine has `distlock`, this script and the job
# in /usr/local/bin, and in /etc/cron.d/report
#
#   DISTLOCK_URL=redis://redis.internal:6379
#   PATH=/usr/local/bin:/usr/bin:/bin
#   15 2 * * *  reports  cli.sh jobs:report report.sh --yesterday | logger -t report
#
# usage: cli.sh KEY COMMAND [ARGUMENT...]
#
# Logs on stdout, and prints what needs attention on stderr, which cron mails. The command's output
# is unchanged. The exit code, which a pipe hides, is that of `distlock run`
# (docs/operations/command-line.md), or 0 if another machine has the lock or the command succeeds.
#
# A lock shows which machine works now, not what is done. So it is kept for DISTLOCK_CLOCKS seconds
# (60) after a success, and a machine with a clock behind by less finds it busy. The period must
# exceed command and pause together, because a start in that time is skipped. All machines need one
# time zone, because cron uses local time.
#
# If a machine dies at work, the job waits for its next time. Alternative: examples/src/nightly.
set -u

if [ $# -lt 2 ]; then
    echo 'usage: cli.sh KEY COMMAND [ARGUMENT...]' >&2
    exit 2
fi
key=$1
shift
clocks=${DISTLOCK_CLOCKS:-60}
succeeded='cli.sh: the command has succeeded'

say() {
    printf '%s %s: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$key" "$1"
}

# Captures distlock's output, and whether the command succeeded. The command's output is unchanged.
# shellcheck disable=SC2016 # The inner shell expands these.
{
    told=$(distlock run --wait 0 "$key" -- sh -c 'clocks=$1 succeeded=$2; shift 2
        "$@" >&3 2>&4 3>&- 4>&- && echo "$succeeded" && exec sleep "$clocks" 3>&- 4>&-' cli.sh "$clocks" "$succeeded" "$@" 2>&1)
    code=$?
} 3>&1 4>&2

case $code:$told in
    0:*) say 'done' ;;
    # The lock was lost in the pause, or a signal ended the pause.
    *:*"$succeeded"*)
        why=$(printf '%s' "${told#*"$succeeded"}" | tr '\n' ' ')
        say "done, but not kept from others for $clocks s after it; look whether one has repeated it (code $code):$why" >&2
        code=0
        ;;
    # Names the holder. If the command itself exits with 116, distlock prints nothing.
    116:'distlock: lock '*) say "${told#distlock: }"; code=0 ;;
    *) say "failed with code $code${told:+: $told}" >&2 ;;
esac
exit "$code"
