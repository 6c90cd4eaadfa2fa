"""Exit codes of all programs. 64 and 69 are those of sysexits.h."""

FAILED = 1  # the work failed, also because a server does not answer
ARGUMENT = 2  # an argument cannot be read
USAGE = 64  # EX_USAGE: a setting or a file that it names is wrong
UNAVAILABLE = 69  # EX_UNAVAILABLE: what `plan` and `explain` read from does not answer
INTERRUPTED = 130  # 128 + SIGINT
