"""Exit codes of every program, with the numbers of sysexits.h."""

FAILED = 1  # the work failed, or its answer is "no"
USAGE = 64  # EX_USAGE: a wrong argument, setting or file of settings
UNAVAILABLE = 69  # EX_UNAVAILABLE: a server does not answer
INTERRUPTED = 130  # 128 + SIGINT
