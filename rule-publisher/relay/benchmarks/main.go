// Command benchmarks measures the relay: a real relay process, a real NATS server, and simulated
// Envoys that each hold a real ADS stream. It measures the time from the publishing of a ruleset to
// every Envoy's ACK.
//
// The last line of its output is one JSON object; times are in seconds, memory is in 10^6 bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/signing/signingtest"
)

func main() {
	relay := flag.String("relay", "spillway-relay", "path of the relay's program")
	envoys := flag.Int("envoys", 1000, "simulated Envoys")
	rounds := flag.Int("rounds", 20, "publishings of each kind")
	sotwEvery := flag.Int("sotw-every", 5, "every n-th Envoy speaks state-of-the-world, the others delta")
	m := mesh{}
	flag.IntVar(&m.services, "services", 50, "services")
	flag.IntVar(&m.clusters, "clusters", 4, "clusters")
	flag.IntVar(&m.classes, "classes", 3, "traffic classes per service, at most 5")
	pods := flag.Int("pods", 5, "endpoints per service and cluster")
	flag.Parse()
	// The simulated Envoys share the relay's cores, which real ones do not, so their garbage
	// collection must not disturb the measurement.
	debug.SetGCPercent(400)
	if err := run(*relay, m, *envoys, *sotwEvery, *rounds, *pods); err != nil {
		fmt.Fprintln(os.Stderr, "bench-relay:", err)
		os.Exit(1)
	}
}

func run(program string, m mesh, envoys, sotwEvery, rounds, pods int) error {
	folder, err := os.MkdirTemp("", "bench-relay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 8*time.Minute, fmt.Errorf("8 minutes are over"))
	defer cancel()
	server, conn, url, err := startNATS(ctx, folder)
	if err != nil {
		return err
	}
	defer server.stop()
	defer conn.Close()
	js, err := makeStreams(ctx, conn)
	if err != nil {
		return err
	}
	authority := identitytest.NewAuthority()
	files, err := authority.WriteServer(folder, authority.Relay(m.home()))
	if err != nil {
		return err
	}
	key := signingtest.NewKey()
	relay, xds, err := startRelay(ctx, program, folder, url, files, key, m, pods)
	if err != nil {
		return err
	}
	defer relay.stop()
	b := &bench{mesh: m, relay: relay, js: js, key: key, seeds: make([]uint64, m.services)}
	if b.ledger, err = listen(conn, m, envoys); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "relay idle: %.0f MB; connecting %d Envoys of %d services\n", relay.memory("VmRSS"), envoys, m.services)
	began := time.Now()
	if b.fleet, err = connect(ctx, m, envoys, sotwEvery, xds, authority); err != nil {
		return relay.failure(err)
	}
	fmt.Fprintf(os.Stderr, "all have routes after %.1f s; relay %.0f MB, %.2f s CPU\n",
		time.Since(began).Seconds(), relay.memory("VmRSS"), relay.cpu().Seconds())
	results, err := b.rounds(ctx, rounds)
	if err != nil {
		return err
	}
	return print(os.Stdout, results, envoys, relay)
}

// rounds publishes n times each kind in turn, after one publishing that is not counted.
func (b *bench) rounds(ctx context.Context, n int) (results []round, err error) {
	if _, err := b.publish(ctx, changeAll); err != nil {
		return nil, err
	}
	for i := range n {
		for _, kind := range kinds {
			r, err := b.publish(ctx, kind)
			if err != nil {
				return nil, err
			}
			results = append(results, r)
		}
		fmt.Fprintf(os.Stderr, "\r%d of %d; relay %.0f MB ", i+1, n, b.relay.memory("VmRSS"))
	}
	fmt.Fprintln(os.Stderr)
	return results, nil
}
