#!/bin/sh
# A cron job that is installed on several machines and runs on one of them. Each has `distlock`, this script and the job in
# /usr/local/bin, and in /etc/cron.d/report
#
#   DISTLOCK_URL=redis://redis.internal:6379
#   PATH=/usr/local/bin:/usr/bin:/bin
#   15 2 * * *  reports  cli.sh jobs:report report.sh --yesterday | logger -t report
#
# usage: cli.sh KEY COMMAND [ARGUMENT...]
#
# What happened is a line on stdout, the log; what somebody has to look at is one on stderr, which cron mails. Output of the command
# stays what it is. The exit code is that of `distlock run` (docs/operations/command-line.md), but 0 where another machine has the lock,
# and where the command has succeeded. Behind a pipe it is lost: cron mails what is written, whatever the code.
#
# A lock says who works now, and not what is done. So after a success it is held for DISTLOCK_CLOCKS seconds (60) longer: a machine whose
# clock is behind by less than that finds it busy. That takes two things. The period is longer than the command and the pause together:
# what starts meanwhile finds it busy as well, and nobody makes up for it. And the machines have one time zone, for cron goes by local time.
#
# When the machine dies while it works, nobody does the job before the next time; if that is too late, see examples/src/nightly.
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

# Takes what distlock itself says, and whether the command has succeeded, which has stdout and stderr as they are here.
# shellcheck disable=SC2016 # The inner shell expands these.
{
    told=$(distlock run --wait 0 "$key" -- sh -c 'clocks=$1 succeeded=$2; shift 2
        "$@" >&3 2>&4 3>&- 4>&- && echo "$succeeded" && exec sleep "$clocks" 3>&- 4>&-' cli.sh "$clocks" "$succeeded" "$@" 2>&1)
    code=$?
} 3>&1 4>&2

case $code:$told in
    0:*) say 'done' ;;
    # Lost in the pause, or told to end.
    *:*"$succeeded"*)
        why=$(printf '%s' "${told#*"$succeeded"}" | tr '\n' ' ')
        say "done, but not kept from others for $clocks s after it; look whether one has repeated it (code $code):$why" >&2
        code=0
        ;;
    # Who has it, and since when. A command may end with 116 as well, and then distlock says nothing.
    116:'distlock: lock '*) say "${told#distlock: }"; code=0 ;;
    *) say "failed with code $code${told:+: $told}" >&2 ;;
esac
exit "$code"
