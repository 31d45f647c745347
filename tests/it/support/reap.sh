# Ends what one test run started and removes its directory, once stdin ends: `sh -c "$(cat reap.sh)" sh DIR`.
#
# Stdin is a pipe that only the test process holds, so it ends when that process does, however it went: a normal end,
# a panic, SIGKILL. No polling, and no pid of the test process that could have been reused meanwhile.
dir=$1
case $dir in */duebox-it-*) ;; *) exit 64 ;; esac
trap '' HUP INT TERM
cat >/dev/null

# A recorded pid may belong to somebody else by now: ours carries the directory in its arguments or its environment.
# Both are asked, because PostgreSQL overwrites its environment with its title.
ours() { grep -qsaF -- "$dir/" "/proc/$1/cmdline" "/proc/$1/environ"; }

left() {
    for file in "$dir"/pids/*; do
        ours "${file##*/}" && return 0
    done
    return 1
}

end_all() {
    for file in "$dir"/pids/*; do
        pid=${file##*/}
        ours "$pid" && kill -s "${1:-$(cat "$file")}" "$pid" && kill -s CONT "$pid"
    done
}

end_all '' 2>/dev/null
tries=50
while left && [ $tries -gt 0 ]; do
    sleep 0.1
    tries=$((tries - 1))
done
end_all KILL 2>/dev/null
rm -rf -- "$dir"
