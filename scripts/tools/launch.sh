# Sourced by the bash launchers: runs scripts/tools/$1.py with the first Python 3.11 or newer that is here.
launch() {
    local here name="$1" python
    here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
    shift
    for python in python3.11 python3 python3.{12..29} python; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            PYTHONPATH="$(dirname "$here")" PYTHONDONTWRITEBYTECODE=1 exec "$python" -m "tools.$name" "$@"
        fi
    done
    echo "This needs Python 3.11 or newer as python3 on the PATH; install it (Debian, Ubuntu: apt-get install python3 python3-venv)." >&2
    exit 1
}
