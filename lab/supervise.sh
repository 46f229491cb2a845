#!/bin/sh
# supervise.sh "CGROUP_DIR..." COMMAND...: run COMMAND in cgroups of its own, again each time the guest asks for a reboot.
# - systemd-nspawn --keep-unit ends with 133 when the guest reboots; the one who started it has to start it again.
# - Without cgroups of its own, two guests would share nspawn's `payload` group and kill each other's services.
# - This loop sits beside the command, not above it: cgroup v2 allows no processes in a group that has children.
set -u
groups=$1
shift

enter() {
    for group in $groups; do
        mkdir -p "$group/$1" && echo 0 >"$group/$1/cgroup.procs" || exit 1
    done
}

enter loop
# Standard input is a pipe to the one who started this: from now on the cgroup finds us. Where nobody reads it any more,
# they were killed before they could know that we exist, and so we must not.
echo in >&0 || exit 1
exec </dev/null

while :; do
    (enter guest && exec "$@")
    status=$?
    [ "$status" -eq 133 ] || exit "$status"
done
