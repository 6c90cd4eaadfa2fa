# Checks of environment variables, for `run`. Each complains on stderr under the variable's name; `wrong` is then 1.
wrong=0

complain() {
  printf 'spillway-collector: %s: %s\n' "$1" "$2" >&2
  wrong=1
}

# given NAME: whether the variable is set and not empty; `value` is what it is.
given() {
  eval "value=\${$1:-}"
  [ -n "$value" ]
}

# present NAME WHAT: the variable must be given.
present() { given "$1" || { complain "$1" "not set; needed: $2"; return 1; }; }

# address NAME WHAT: host:port, the host without spaces, the port a number of 1 to 65535.
address() {
  present "$1" "$2" || return 0
  port=${value##*:}
  case "$value" in *[[:space:]]* | :*) bad=1 ;; *:*) bad=0 ;; *) bad=1 ;; esac
  case "$port" in '' | *[!0-9]* | ??????*) bad=1 ;; esac
  [ "$bad" -eq 0 ] && [ "$port" -ge 1 ] && [ "$port" -le 65535 ] && return 0
  complain "$1" "'$value' must be host:port, port 1 to 65535"
}

# brokers NAME: host:port,host:port..
brokers() {
  present "$1" "host:port[,host:port..] of the brokers" || return 0
  case "$value" in
  *[!][A-Za-z0-9._:,-]* | *,,* | ,* | *, | *[!0-9]) ;;
  *:*) return 0 ;;
  esac
  complain "$1" "'$value' must be host:port[,host:port..]"
}

# choice NAME ALLOWED..: not given, or one of these.
choice() {
  name=$1
  given "$1" || return 0
  shift
  for allowed in "$@"; do [ "$value" != "$allowed" ] || return 0; done
  complain "$name" "'$value' must be one of: $*"
}

# file NAME: not given, or a file that this process can read.
file() {
  ! given "$1" || { [ -f "$value" ] && [ -r "$value" ]; } || complain "$1" "'$value' is not a readable file"
}

# needs NAME OTHER: when NAME is given, OTHER is too.
needs() {
  ! given "$1" || given "$2" || complain "$2" "not set; needed with $1"
}

# together NAME OTHER: both or none.
together() {
  needs "$1" "$2"
  needs "$2" "$1"
}

# endpoint NAME WHAT: an https:// URL, or an http:// one to this machine or with SPILLWAY_PLAINTEXT=allow. It is not shown:
# it may hold a password.
endpoint() {
  present "$1" "$2" || return 0
  case "$value" in
  *[[:space:]]*) bad=1 ;;
  *) printf '%s' "$value" | grep -Eq '^https?://(\[[0-9A-Fa-f:.]+\]|[^]/?#@:[]+)(:[0-9]+)?([/?][^#]*)?$' && bad=0 || bad=1 ;;
  esac
  [ "$bad" -eq 0 ] || { complain "$1" "must be https://host[:port]/path, without user and fragment"; return 0; }
  choice SPILLWAY_PLAINTEXT allow
  given "$1"
  case "$value" in https://*) return 0 ;; esac
  host=${value#http://}
  host=${host%%[/?]*}
  case "${host##*]}" in *:*) ;; *) host=$host:80 ;; esac
  loopback "$host" || [ "${SPILLWAY_PLAINTEXT:-}" = allow ] ||
    complain "$1" "http:// in clear text to another host; must be https://, or set SPILLWAY_PLAINTEXT=allow in an isolated network"
}

# loopback LIST: every host:port of the list is this machine.
loopback() {
  [ -n "$1" ] || return 1
  for broker in $(echo "$1" | tr ',' ' '); do
    case "$broker" in
    127.*[!0-9.:]* | 127.*:*:*) return 1 ;;
    127.*.*.*:* | localhost:* | '[::1]:'*) ;;
    *) return 1 ;;
    esac
  done
}
