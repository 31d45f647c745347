# Private throw-away servers on loopback, for run.sh and the benches: whoever sources it owns $dir and the list of pids, and
# says how to give_up REASON [LOG].

wait_for() { # wait_for SECONDS WHAT COMMAND...
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || give_up "$what is not there in time; last words:" "$(last_log)"
        sleep 0.1
    done
}

last_log() { # of the process that was started last
    local logs
    logs=$(ls -t "$dir"/*.log 2>/dev/null) || true
    echo "${logs%%$'\n'*}"
}

as_account() { # as_account ACCOUNT COMMAND...: both servers refuse root. Whatever becomes of us, they end with us.
    local account=$1 drop=()
    shift
    ((EUID)) || drop=(--reuid "$account" --regid "$account" --clear-groups)
    exec setpriv "${drop[@]}" --pdeathsig TERM "$@"
}

own_folder() { # own_folder ACCOUNT NAME: a folder that the account may write to
    mkdir -p "$dir/$2"
    ((EUID)) || chown "$1:" "$dir/$2"
}

free_port() {
    local port
    while true; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

newest_postgres() {
    local bins=(/usr/lib/postgresql/*/bin)
    printf '%s\n' "${bins[@]}" | sort -V | tail -n 1
}

start_postgres() {
    local bin port
    bin=$(newest_postgres) port=$(free_port)
    own_folder postgres pg
    (as_account postgres "$bin/initdb" -D "$dir/pg/data" -A trust -U shop -E UTF8 --locale=C.UTF-8 --no-sync) >"$dir/initdb.log" 2>&1 ||
        give_up "initdb failed" "$dir/initdb.log"
    as_account postgres "$bin/postgres" -D "$dir/pg/data" -p "$port" -k "$dir/pg" -c listen_addresses=127.0.0.1 \
        -c fsync=off >"$dir/postgres.log" 2>&1 </dev/null &
    pids[postgres]=$!
    postgres_url=postgres://shop@127.0.0.1:$port/postgres
    wait_for 60 "PostgreSQL" psql -XAtqc 'select 1' "$postgres_url"
}

start_epmd() { # the broker would start one that outlives it
    epmd_port=$(free_port)
    as_account rabbitmq env -i PATH=/usr/bin:/bin epmd -address 127.0.0.1 -port "$epmd_port" >/dev/null 2>&1 </dev/null &
    pids[epmd]=$!
}

start_rabbitmq() { # the same port and data again after a kill
    local quiet='+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}'
    if [[ -z ${amqp_port:-} ]]; then
        amqp_port=$(free_port) dist_port=$(free_port)
        start_epmd
        own_folder rabbitmq rabbit
        printf '[].\n' >"$dir/rabbit/plugins"
        : >"$dir/rabbit/env.conf"
        printf 'listeners.tcp.1 = 127.0.0.1:%s\nlog.console = true\nlog.file = false\ndisk_free_limit.absolute = 50MB\n' \
            "$amqp_port" >"$dir/rabbit/rabbitmq.conf"
    fi
    # RUNNING_UNDER_SYSTEMD makes the start script become the node, so that its pid is the node's.
    as_account rabbitmq env -i PATH=/usr/lib/rabbitmq/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME="$dir/rabbit" \
        RUNNING_UNDER_SYSTEMD=true RABBITMQ_NODENAME="duebox-demo-$amqp_port@localhost" RABBITMQ_DIST_PORT="$dist_port" \
        ERL_EPMD_PORT="$epmd_port" ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_MNESIA_BASE="$dir/rabbit/mnesia" \
        RABBITMQ_LOG_BASE="$dir/rabbit/log" RABBITMQ_CONFIG_FILE="$dir/rabbit/rabbitmq" \
        RABBITMQ_CONF_ENV_FILE="$dir/rabbit/env.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$dir/rabbit/plugins" \
        RABBITMQ_PID_FILE="$dir/rabbit/pid" RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="$quiet" \
        RABBITMQ_MAX_NUMBER_OF_PROCESSES=65536 rabbitmq-server >>"$dir/rabbitmq.log" 2>&1 </dev/null &
    pids[rabbitmq]=$!
    amqp_url=amqp://guest:guest@127.0.0.1:$amqp_port/%2F
    wait_for 120 "RabbitMQ" greets "$amqp_port"
}

greets() { # an AMQP server answers a wrong protocol header with the right one
    local answer
    exec 4<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'AMQP????' >&4
    read -r -t 5 -N 4 answer <&4 || true
    exec 4>&-
    [[ $answer == AMQP ]]
} 2>/dev/null

end() { # end NAME [SIGNAL]: ends a process of ours and waits for it
    local pid=${pids[$1]:-}
    [[ $pid ]] || return 0
    unset "pids[$1]"
    kill -s "${2:-TERM}" "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}
