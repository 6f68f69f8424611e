# Completion of ringest's command line for bash. Objects are asked for, with a time limit, if the word begins with
# gs://BUCKET/.

# Puts the whole word at the cursor into $place, and what bash does not replace of it into $before: bash cuts words at
# ":", "=" and "@", too, and gives each cut as a word of its own.
_ringest_place() {
    local i=$COMP_CWORD cut
    place=${COMP_WORDS[i]} before='' cut=''
    [[ $place == [:=@]* ]] && cut=yes before=$place
    while [ "$i" -gt 2 ]; do
        i=$((i - 1))
        if [[ ${COMP_WORDS[i]} == [:=@]* ]]; then
            [ -n "$cut" ] && return
            cut=yes
        else
            [ -z "$cut" ] && return
            cut=''
        fi
        place=${COMP_WORDS[i]}$place before=${COMP_WORDS[i]}$before
    done
}

# The names that begin with $1, up to their next "/", without $2 at their start, and quoted, because anybody may have
# named them.
_ringest_objects() {
    local line quoted before=${2//\\/}
    COMPREPLY=()
    while IFS= read -r line; do
        [[ $line == *[[:cntrl:]]* || $line != "$before"* ]] && continue
        printf -v quoted '%q' "${line#"$before"}"
        COMPREPLY+=("$quoted")
    done < <(timeout 3 "${words[0]}" ls --quiet --literal -- "${1//\\/}" 2>/dev/null </dev/null | head -n 500)
    compopt -o nospace +o filenames 2>/dev/null
    if [ "${#COMPREPLY[@]}" -eq 1 ] && [[ ${COMPREPLY[0]} != */ ]]; then
        compopt +o nospace 2>/dev/null
    fi
}

_ringest() {
    local cur prev words cword
    _init_completion -n : 2>/dev/null || {
        COMPREPLY=()
        cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} cword=$COMP_CWORD
        words=("${COMP_WORDS[@]}")
    }
    local common='--endpoint --ca --credentials --proxy --threads --memory --numa --option --log --log-file --quiet --help'
    local client='adapting attempts backend backoff_max backoff_min ca cache cache_size client_cert client_key connect_timeout
        connect_to connections first_byte_timeout hedge_size hedges_per_1000 hedging idle_timeout job_processes
        local_address local_device memory numa prewarm proxy ramp reads_per_s requests scope sharing stall_timeout threads
        user_agent user_project writes_per_s'
    local commands='ls stat du hash cat cp mv rm signurl rsync manifest tar ckpt cache bench emulate doctor top explain'
    if [ "$cword" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$cur")
        return
    fi
    case $prev in
    --ca | --log-file | --credentials | --root | --tls-dir | --manifest)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    --numa)
        mapfile -t COMPREPLY < <(compgen -W 'auto compact spread none' -- "$cur")
        return
        ;;
    --log)
        mapfile -t COMPREPLY < <(compgen -W 'error warn info debug' -- "$cur")
        return
        ;;
    --method)
        [ "${words[1]}" = signurl ] && mapfile -t COMPREPLY < <(compgen -W 'GET HEAD PUT POST DELETE' -- "$cur") && return
        mapfile -t COMPREPLY < <(compgen -W 'auto single resumable multipart compose' -- "$cur")
        return
        ;;
    --storage-class)
        mapfile -t COMPREPLY < <(compgen -W 'STANDARD NEARLINE COLDLINE ARCHIVE' -- "$cur")
        return
        ;;
    --option)
        mapfile -t COMPREPLY < <(compgen -S = -W "$client" -- "$cur")
        return
        ;;
    --endpoint | --proxy | --threads | --memory | --range | --glob | --if-generation-match | --content-type | --part-size | \
        --concurrency | --count | --seconds | --object-size | --listen | --synthetic | --latency-ms | --conn-mbps | \
        --rate-limit | --bucket | --to | --duration | --include | --exclude | --cache-control | --content-encoding | --custom-metadata)
        return
        ;;
    esac
    local options
    case ${words[1]} in
    ls) options="--long --human-readable --recursive --versions --glob --literal --json --hex $common" ;;
    stat) options="--literal --json --hex $common" ;;
    cat) options="--range --literal $common" ;;
    cp)
        options="--recursive --no-clobber --dry-run --if-generation-match --content-type --method --part-size
            --concurrency --follow-symlinks --literal --include --exclude --cache-control --content-encoding --custom-metadata --storage-class --json $common"
        ;;
    rm) options="--recursive --dry-run --if-generation-match --unfinished --older-than --literal --json $common" ;;
    manifest) options="--long --folder-markers --json $common" ;;
    tar) options="--long --json $common" ;;
    ckpt) options="--keep-last --keep-every --dry-run --older-than --all-uploads --json $common" ;;
    cache) options="--manifest --concurrency --remove --to --json $common" ;;
    bench)
        options="--concurrency --count --seconds --warm-up --rate --arrival --ramp --interval --processes --rounds
            --object-size --keep --verify --per-connection --json --result $common"
        ;;
    emulate)
        options='--listen --root --synthetic --bucket --strict-buckets --plain --tls-dir --latency-ms --conn-mbps --rate-limit --threads --help'
        ;;
    top) options='--interval --once --json --help' ;;
    explain) options='--steps --seconds --interval --once --json --help' ;;
    doctor) options="--bucket --online --json $common" ;;
    mv) options="--no-clobber --dry-run --content-type --cache-control --content-encoding --custom-metadata --storage-class --concurrency --include --exclude --literal --json $common" ;;
    rsync) options="--recursive --delete --dry-run --content-type --cache-control --content-encoding --custom-metadata --storage-class --concurrency --follow-symlinks --include --exclude --json $common" ;;
    du) options="--summarize --human-readable --total --versions --literal --json $common" ;;
    hash) options="--hex --literal --json $common" ;;
    signurl) options='--duration --method --content-type --option --credentials --endpoint --help' ;;
    *) return ;;
    esac
    local place before
    _ringest_place
    if [[ $place == gs://*/* && $place != gs:///* ]]; then
        _ringest_objects "$place" "$before"
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
    elif [ "${words[1]} $cword" = 'manifest 2' ]; then
        mapfile -t COMPREPLY < <(compgen -W 'save show' -- "$cur")
    elif [ "${words[1]} $cword" = 'tar 2' ]; then
        mapfile -t COMPREPLY < <(compgen -W 'index show' -- "$cur")
    elif [ "${words[1]} $cword" = 'ckpt 2' ]; then
        mapfile -t COMPREPLY < <(compgen -W 'ls prune' -- "$cur")
    elif [ "${words[1]} $cword" = 'cache 2' ]; then
        mapfile -t COMPREPLY < <(compgen -W 'warm ls verify prune stats' -- "$cur")
    elif [ "${words[1]} $cword" = 'bench 2' ]; then
        mapfile -t COMPREPLY < <(compgen -W 'get put list run presets compare report' -- "$cur")
    elif [ "${words[1]}" = mv ] || [ "${words[1]}" = cp ] || [ "${words[1]}" = manifest ] || [ "${words[1]}" = cache ] || [ "${words[1]}" = tar ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -o filenames -F _ringest ringest
