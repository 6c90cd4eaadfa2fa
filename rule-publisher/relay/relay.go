package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/control"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/report"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/table"
)

const (
	filesEvery = 2 * time.Second
	drainTime  = 2 * time.Second
)

// relay is the wiring: every part, and nothing that thinks.
type relay struct {
	conf     config
	log      *slog.Logger
	counters *count.Counters
	files    *source.Files
	conn     *nats.Conn
	acks     *report.Acks
	loop     *control.Loop
	streams  *serve.Streams
	xds      *grpc.Server
	listener net.Listener // of xDS
	health   net.Listener
}

// newRelay reads files and disk state and opens the listeners. NATS may be away.
func newRelay(ctx context.Context, conf config, log *slog.Logger) (*relay, error) {
	r := &relay{conf: conf, log: log, counters: &count.Counters{},
		files: &source.Files{Cluster: conf.Cluster, Topology: conf.Topology, Endpoints: conf.Endpoints}}
	network, err := r.files.Load()
	store, err2 := state.Open(conf.StateDir)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	if r.listener, err = net.Listen("tcp", conf.XDSListen); err != nil {
		return nil, err
	}
	if r.health, err = net.Listen("tcp", conf.HealthListen); err != nil {
		return nil, errors.Join(err, r.listener.Close())
	}
	if r.conn, err = source.Connect(conf.NatsURL, conf.Cluster, log); err != nil {
		return nil, errors.Join(err, r.listener.Close(), r.health.Close())
	}
	r.acks = report.NewAcks(r.conn, conf.Cluster, r.counters, log)
	cache := serve.NewCache()
	r.loop = control.NewLoop(ctx, control.Ports{Cache: cache, Save: store.Save, Acknowledge: r.acks.Put,
		Counters: r.counters, Log: log}, network, r.kept(store))
	r.streams = serve.NewStreams(conf.Cluster, r.loop.Observer(ctx), r.counters)
	r.xds = serve.NewServer(ctx, cache, r.streams)
	return r, nil
}

// kept is the ruleset of before the restart; nil when there is none that can be used.
func (r *relay) kept(store *state.Store) *table.Rules {
	ruleset, err := store.Load()
	if ruleset == nil && err == nil {
		return nil
	}
	var rules *table.Rules
	if err == nil {
		rules, err = table.ParseRules(ruleset, r.conf.Cluster)
	}
	if err != nil {
		r.counters.Add(count.StateErrors)
		r.log.Error("the ruleset kept on disk cannot be used", "error", err)
		return nil
	}
	r.log.Info("the ruleset kept on disk is taken up", "version", rules.Version, "expires_at", rules.ExpiresAt)
	return rules
}

// run until the context ends or a server fails.
func (r *relay) run(asked context.Context) error {
	ctx, stop := context.WithCancelCause(asked)
	defer stop(nil)
	rulesets := &source.Rulesets{Conn: r.conn, Cluster: r.conf.Cluster, Log: r.log,
		Taken: func(value []byte) { r.loop.Ruleset(ctx, value) }}
	health := &http.Server{ReadHeaderTimeout: 5 * time.Second,
		Handler: healthHandler(r.conf.Cluster, r.loop, r.streams, r.conn, r.acks, r.counters)}
	var running sync.WaitGroup
	running.Go(func() { r.loop.Run(ctx) })
	running.Go(func() { rulesets.Run(ctx) })
	running.Go(func() {
		r.files.Watch(ctx, filesEvery, r.counters, r.log, func(n *table.Network) { r.loop.Network(ctx, n) })
	})
	running.Go(func() { r.acks.Run(ctx) })
	running.Go(func() { report.Heartbeats(ctx, r.conn, r.counters, r.conf.Cluster, r.heartbeat) })
	running.Go(func() { stop(r.xds.Serve(r.listener)) })
	running.Go(func() { stop(health.Serve(r.health)) })
	r.log.Info("serving", "xds", r.listener.Addr().String(), "health", r.health.Addr().String())
	<-ctx.Done()
	r.shutdown(health)
	running.Wait()
	if asked.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

func (r *relay) heartbeat(now time.Time) *spillwayv1.Heartbeat {
	return report.NewHeartbeat(r.conf.Cluster, r.loop.Status().Version, r.streams.Connected(), now)
}

// shutdown ends streams; the Envoys keep what they have and come back to the next relay.
func (r *relay) shutdown(health *http.Server) {
	force := time.AfterFunc(drainTime, r.xds.Stop)
	r.xds.GracefulStop()
	force.Stop()
	health.Close() //nolint:errcheck // going anyway
	r.conn.Close()
	if waiting := r.acks.Waiting(); waiting > 0 {
		r.log.Warn("stopping with acknowledgements that NATS has not stored", "count", waiting)
	}
}
