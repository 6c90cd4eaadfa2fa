// The relay of one cluster: rulesets from NATS JetStream KV to the cluster's Envoys over xDS, and
// their answers and presence back.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// exitUsage is EX_USAGE of sysexits.h: the configuration is wrong.
const exitUsage = 64

// gcPercent trades CPU, of which a relay needs little, for memory (docs/adr/0011-memory-of-a-relay.md).
// GOGC overrides it.
const gcPercent = 17

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	conf, err := readConfig(os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "spillway-relay: wrong configuration:\n%v\n", err)
		os.Exit(exitUsage)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: conf.LogLevel})).With("cluster", conf.Cluster)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	relay, err := newRelay(conf, log)
	if err != nil {
		fmt.Fprintf(os.Stderr, "spillway-relay: cannot start:\n%v\n", err)
		os.Exit(exitUsage)
	}
	if err := relay.run(ctx); err != nil {
		log.Error("stopped", "error", err)
		os.Exit(1)
	}
}
