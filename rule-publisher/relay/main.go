// The relay of one cluster: rulesets from NATS JetStream KV to the cluster's Envoys over xDS, and
// their answers and presence back.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// exitUsage is EX_USAGE of sysexits.h: the configuration is wrong.
const exitUsage = 64

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	conf, err := readConfig(os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "spillway-relay: wrong configuration:\n%v\n", err)
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	relay, err := newRelay(ctx, conf, log.With("cluster", conf.Cluster))
	if err != nil {
		fmt.Fprintf(os.Stderr, "spillway-relay: cannot start:\n%v\n", err)
		os.Exit(exitUsage)
	}
	if err := relay.run(ctx); err != nil {
		log.Error("stopped", "error", err)
		os.Exit(1)
	}
}
