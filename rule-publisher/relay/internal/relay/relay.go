package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/control"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/discovery"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/inflight"
	"spillway.dev/relay/internal/report"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/table"
)

const (
	filesEvery = time.Second      // period of checking certificates and ruleset keys
	sayEvery   = 10 * time.Second // at least, between two log lines about refused handshakes

	// DrainOver is the time over which the ends of the streams are spread. A shutdown takes at most
	// DrainOver and flushFor, half a second for connections that do not close, and saveFor.
	DrainOver = 2500 * time.Millisecond
	flushFor  = time.Second            // then, for acknowledgements that wait for NATS
	saveFor   = 200 * time.Millisecond // then, for the newest ruleset on a slow disk
)

// Relay connects the parts of the process. It makes no decisions.
type Relay struct {
	conf      Config
	log       *slog.Logger
	counters  *count.Counters
	endpoints *discovery.Directory
	store     *state.Store
	saves     state.Later[signed]
	keeper    *identity.Keeper
	keys      *signing.Keeper
	rekeyed   chan struct{} // receives when the keys have changed
	conn      *nats.Conn
	refusal   source.Refusal // why NATS refuses the relay
	acks      *report.Acks
	cache     *serve.Cache
	loop      *control.Loop
	rulesets  *source.Rulesets
	streams   *serve.Streams
	loads     *inflight.Board
	metrics   *metrics
	xds       *serve.Server
	listener  net.Listener // of xDS
	health    net.Listener

	life     context.Context // ends after the draining
	end      context.CancelFunc
	started  time.Time
	draining atomic.Bool
}

// New reads files and the state on disk, and opens the listeners. NATS may be away.
func New(conf Config, log *slog.Logger) (made *Relay, err error) {
	r := &Relay{conf: conf, log: log, counters: &count.Counters{}, started: time.Now(), cache: serve.NewCache(), rekeyed: make(chan struct{}, 1)}
	r.life, r.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, r.abandon())
		}
	}()
	var network *table.Network
	var err2, err3, err4 error
	r.keeper, err = identity.NewKeeper(conf.XDS)
	r.keys, err4 = signing.NewKeeper(conf.RulesetKeys)
	if r.store, err2 = state.Open(conf.StateDir, conf.Cluster); err2 == nil {
		r.endpoints = &discovery.Directory{Cluster: conf.Cluster, Store: r.store, Counters: r.counters, Log: log,
			Files: &source.Files{Topology: conf.Topology, Endpoints: conf.Endpoints}}
		network, err3 = r.endpoints.Open(r.life)
	}
	if err = errors.Join(err, err4, err2, err3); err != nil {
		return nil, err
	}
	if r.listener, err = net.Listen("tcp", conf.XDSListen); err != nil {
		return nil, err
	}
	if r.health, err = net.Listen("tcp", conf.HealthListen); err != nil {
		return nil, err
	}
	if r.conn, err = source.Connect(conf.NATS, conf.Cluster, &r.refusal, r.counters, log); err != nil {
		return nil, err
	}
	if r.acks, err = report.NewAcks(r.conn, conf.Cluster, r.keptAcks(), r.forgetAcks, r.counters, log); err != nil {
		return nil, err
	}
	r.assemble(network)
	return r, nil
}

// XDSAddr returns host:port of xDS.
func (r *Relay) XDSAddr() string { return r.listener.Addr().String() }

// HealthAddr returns host:port of health, status and metrics.
func (r *Relay) HealthAddr() string { return r.health.Addr().String() }

// Started returns when the process began, from which readiness counts.
func (r *Relay) Started() time.Time { return r.started }

// Counters returns everything that the relay has counted.
func (r *Relay) Counters() *count.Counters { return r.counters }

// Answered reports whether NATS has answered which ruleset is in force, or that there is none.
func (r *Relay) Answered() bool { return r.rulesets.Answered() }

// abandon closes what a failed start has opened.
func (r *Relay) abandon() (err error) {
	r.end()
	for _, listener := range []net.Listener{r.listener, r.health} {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
	}
	if r.conn != nil {
		r.conn.Close()
	}
	return err
}

// assemble creates and connects the parts that make decisions.
func (r *Relay) assemble(network *table.Network) {
	r.metrics = newMetrics(r)
	r.saves.Write = r.save
	r.loop = control.NewLoop(r.life, control.Ports{Cache: r.cache, Keys: r.keys.Keys,
		Save: func(value signing.Value, version uint64) { r.saves.Put(signed{value, version}) },
		Hold: r.conf.Hold, Acknowledge: r.acks.Put, Counters: r.counters, Log: r.log}, network, r.kept(network.Clusters))
	r.rulesets = &source.Rulesets{Conn: r.conn, Refusal: &r.refusal, Cluster: r.conf.Cluster, Log: r.log,
		Taken: func(value signing.Value) { r.loop.Ruleset(value) }, Again: r.rekeyed}
	r.loads = inflight.NewBoard(network)
	r.streams = &serve.Streams{Cluster: r.conf.Cluster, Identity: r.conf.Identity, Mesh: r.conf.Mesh, Observer: r.loop.Observer(),
		Loads: r.loads, Counters: r.counters, Log: r.log, PushToAck: r.metrics.pushToAck}
	r.xds = serve.NewServer(r.cache, r.streams, r.keeper.TLS(), r.handshakeRefused())
}

// handshakeRefused returns a function that counts every failed handshake and logs at most one every
// sayEvery. A whole mesh with expired certificates tries to connect without pause.
func (r *Relay) handshakeRefused() func(net.Addr, error) {
	var quietUntil atomic.Int64
	return func(from net.Addr, err error) {
		r.counters.Add(count.TLSHandshakesRefused)
		now, until := time.Now(), quietUntil.Load()
		if now.UnixNano() > until && quietUntil.CompareAndSwap(until, now.Add(sayEvery).UnixNano()) {
			r.log.Warn("a connection to xDS is refused", "from", from.String(), "error", err)
		}
	}
}

// Run serves until the context ends or a server fails, and then drains.
func (r *Relay) Run(asked context.Context) error {
	ctx, stop := context.WithCancelCause(asked)
	defer stop(nil)
	health := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: r.healthHandler()}
	var serving, reporting sync.WaitGroup
	serving.Go(func() { r.loop.Run(r.life) })
	serving.Go(func() { r.rulesets.Run(r.life) })
	serving.Go(func() { r.endpoints.Run(r.life, func(n *table.Network) { r.loop.Network(n); r.loads.Network(n) }) })
	serving.Go(func() { r.keeper.Watch(r.life, filesEvery, r.counters, r.log) })
	serving.Go(func() { r.keys.Watch(r.life, filesEvery, r.counters, r.log, r.judgeAgain) })
	serving.Go(func() { stop(r.xds.Serve(r.listener)) })
	serving.Go(func() { stop(health.Serve(r.health)) })
	// No heartbeats while draining: Envoys that leave are still connected, and will come to another
	// relay.
	serving.Go(func() { report.Heartbeats(ctx, r.conn, r.counters, r.conf.Cluster, r.heartbeat) })
	reports, endReports := context.WithCancel(context.Background())
	reporting.Go(func() { r.acks.Run(reports, flushFor) })
	reporting.Go(func() { r.keepWaitingAcks(ctx) })
	r.log.Info("serving", "xds", r.listener.Addr().String(), "health", r.health.Addr().String())
	<-ctx.Done()
	r.draining.Store(true)
	r.log.Info("draining", "envoys", r.streams.Connected())
	r.xds.Drain(DrainOver)
	endReports()
	reporting.Wait()
	r.keepAcks()
	r.end()
	health.Close() // going anyway
	serving.Wait()
	if !r.saves.Wait(saveFor) {
		r.log.Warn("the newest ruleset cannot be kept on disk; the next start uses an older one")
	}
	r.conn.Close()
	if asked.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// judgeAgain makes the relay verify the present value of the bucket again, because its key may be
// trusted only now.
func (r *Relay) judgeAgain() {
	select {
	case r.rekeyed <- struct{}{}:
	default: // a signal is waiting already; one serves both
	}
}

func (r *Relay) heartbeat(now time.Time) *spillwayv1.Heartbeat {
	status := r.loop.Status()
	heartbeat := report.NewHeartbeat(r.conf.Cluster, r.conf.Relay, status.Version, r.conf.Hold, r.streams.PlacedEnvoys(), r.endpoints.Readiness(), now)
	heartbeat.CanaryVersion = status.Canary
	heartbeat.CallsInFlight = report.CallsInFlight(r.loads.Sums(now))
	return heartbeat
}
