package relay

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"spillway.dev/contracts/spillwayruntime"
)

// ExitUsage is EX_USAGE of sysexits.h: the configuration is wrong.
const ExitUsage = 64

// gcPercent reduces memory at the cost of CPU, of which a relay needs little
// (docs/adr/0011-memory-of-a-relay.md). GOGC overrides it.
const gcPercent = 17

// Main runs the relay's process: it reads the environment, serves until a signal, and exits.
func Main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	conf, err := ReadConfig(os.Getenv)
	for _, warning := range conf.Warnings {
		fmt.Fprintf(os.Stderr, "spillway-relay: %s\n", warning)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "spillway-relay: wrong configuration:\n%v\n", err)
		os.Exit(ExitUsage)
	}
	log := spillwayruntime.NewLog(os.Stderr, conf.LogLevel).With("cluster", conf.Cluster)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	process, err := New(conf, log)
	if err != nil {
		fmt.Fprintf(os.Stderr, "spillway-relay: cannot start:\n%v\n", err)
		os.Exit(ExitUsage)
	}
	if err := process.Run(ctx); err != nil {
		log.Error("stopped", "error", err)
		os.Exit(1)
	}
}
