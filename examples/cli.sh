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
# A lock shows which machine runs the job now, not whether it has already run. So after a success
# the script keeps the lock for DISTLOCK_CLOCK_SKEW seconds (default 60). A machine whose clock is
# behind by less finds it busy. The period must be longer than the command and this pause together,
# because a start in that time is skipped. All machines need one time zone, because cron uses local
# time.
#
# If a machine dies during the job, no other machine repeats it before the next scheduled start. For
# a job that another machine repeats after a failure, start `distlock run --once-per 23h` more often,
# which records a success (docs/recipes/jobs.md).
set -u

if [ $# -lt 2 ]; then
    echo 'usage: cli.sh KEY COMMAND [ARGUMENT...]' >&2
    exit 2
fi
key=$1
shift
clock_skew=${DISTLOCK_CLOCK_SKEW:-60}
succeeded='cli.sh: the command has succeeded'

log() {
    printf '%s %s: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$key" "$1"
}

# Captures the output of distlock, and whether the command succeeded, but not the command's output.
# shellcheck disable=SC2016 # The inner shell expands these.
{
    output=$(distlock run --wait 0 "$key" -- sh -c 'clock_skew=$1 succeeded=$2; shift 2
        "$@" >&3 2>&4 3>&- 4>&- && echo "$succeeded" && exec sleep "$clock_skew" 3>&- 4>&-' cli.sh "$clock_skew" "$succeeded" "$@" 2>&1)
    code=$?
} 3>&1 4>&2

case $code:$output in
    0:*) log 'done' ;;
    # The lock was lost in the pause, or a signal ended the pause.
    *:*"$succeeded"*)
        detail=$(printf '%s' "${output#*"$succeeded"}" | tr '\n' ' ')
        log "done, but not kept from others for $clock_skew s after it; check whether another machine repeated it (code $code):$detail" >&2
        code=0
        ;;
    # Names the holder. If the command itself exits with 116, distlock prints nothing.
    116:'distlock: lock '*) log "${output#distlock: }"; code=0 ;;
    *) log "failed with code $code${output:+: $output}" >&2 ;;
esac
exit "$code"
