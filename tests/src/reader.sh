# The shell of `reader.rs`. Every command of a block must succeed; these commands are replaced, each for its reason.
set -euo pipefail
mkdir -p "$ROOT/opt" "$ROOT/var/lib" "$ROOT/etc/systemd/system"

# Notes a command that the test then finds in its list.
note() { printf '%s\n' "$*" >> "$READER/calls"; }

# A program that ends with this shell, however the shell ends.
bound() {
    if ((BASH_SUBSHELL > 0)); then exec setpriv --pdeathsig KILL -- "$@"; fi
    setpriv --pdeathsig KILL -- "$@"
}

# They go on until they are ended, and the documents start them in the background.
ffmpeg() { bound ffmpeg "$@" 2>> "$READER/ffmpeg.log"; }
python3() { bound python3 "$@"; }

# There is no screen: four seconds are decoded.
ffplay() { bound ffmpeg -nostdin -loglevel error -i "$1" -t 4 -f null -; }

# An error of the API fails the block. A feed never ends: it is cut off after three seconds.
curl() {
    case "$*" in
        -sN\ *) timeout 3 curl --fail-with-body "$@" || test $? = 124 ;;
        *) command curl --fail-with-body "$@" ;;
    esac
}

# Project commands build for minutes: the test compares their names with the help.
cargo() { note cargo "$@"; }

# Packages that are installed for other tests, instead of those of the reader's machine.
npx() { "$NPM_TOOLS/$1" "${@:2}"; }
openapi-generator-cli() { "$PYTHON_TOOLS/openapi-generator-cli" "$@"; }

# The test runs as one user, and leaves the users of the machine alone.
sudo() {
    if [[ "$1" = -u ]]; then shift 2; fi
    "$@"
}
useradd() { note useradd "$@"; }
chown() { note chown "$@"; }
install() {
    note install "$@"
    local kept=()
    while (($#)); do
        case "$1" in
            -o | -g) shift 2 ;;
            *) kept+=("$1"); shift ;;
        esac
    done
    command install "${kept[@]}"
}

# Asks for a password, at a terminal if there is one.
createuser() { printf '%s\n%s\n' "$PGPASSWORD" "$PGPASSWORD" | setsid --wait createuser "$@"; }

# Starts what the installed unit names, and ends it as systemd does.
systemctl() {
    note systemctl "$@"
    case "$*" in
        daemon-reload) ;;
        "enable --now satcast" | "start satcast") start_unit ;;
        "stop satcast") kill "$UNIT"; wait "$UNIT" ;;
        *) return 1 ;;
    esac
}
start_unit() {
    local line words
    line=$(sed -n 's/^ExecStart=//p' "$ROOT/etc/systemd/system/satcast.service")
    line=${line//\/opt\//$ROOT/opt/}
    line=${line//\/etc\//$ROOT/etc/}
    read -ra words <<< "$line"
    (cd "$ROOT/var/lib/satcast" && bound "${words[@]}") >> "$READER/unit.log" 2>&1 &
    UNIT=$!
    until command curl -fs "$BASE/readyz" > "$READER/readyz"; do
        kill -0 "$UNIT"
        sleep 0.1
    done
}
