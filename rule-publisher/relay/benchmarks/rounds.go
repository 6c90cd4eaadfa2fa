package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/signing/signingtest"
)

// Kinds of publishing.
const (
	changeAll = "all services change"
	changeOne = "one service changes"
	renewal   = "nothing changes (renewal)"
)

var kinds = []string{changeAll, changeOne, renewal}

// round holds the measurements of one publishing.
type round struct {
	kind      string
	acks      []float64 // seconds from before the put until the relay knew of each Envoy's ACK
	last      float64   // seconds until the last of them
	cpu       float64   // CPU seconds of the relay
	bytes     int64     // of responses
	responses int64
	rss       float64 // memory of the relay after the round, MB
	unchanged int64   // responses to Envoys of services whose rules did not change
}

// ledger collects the acknowledgements of routes as the publisher would see them.
type ledger struct {
	mu      sync.Mutex
	version uint64
	at      map[string]time.Time // by Envoy: when the relay knew that the version is in force
	whole   chan struct{}
	envoys  int
}

func listen(conn *nats.Conn, m mesh, envoys int) (*ledger, error) {
	l := &ledger{envoys: envoys, at: map[string]time.Time{}}
	subject := strings.ReplaceAll(names.NatsSubjectAcks, "{cluster}", m.home())
	_, err := conn.Subscribe(subject, func(message *nats.Msg) {
		ack := &spillwayv1.Acknowledgement{}
		if proto.Unmarshal(message.Data, ack) == nil {
			l.note(ack)
		}
	})
	return l, err
}

// expect starts to collect acknowledgements of the version. The channel closes when every Envoy has
// acknowledged it.
func (l *ledger) expect(version uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version, l.at, l.whole = version, map[string]time.Time{}, make(chan struct{})
	return l.whole
}

func (l *ledger) note(ack *spillwayv1.Acknowledgement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ack.GetRulesetVersion() != l.version || ack.GetTypeUrl() != resource.RouteType ||
		ack.GetOutcome() != spillwayv1.Outcome_OUTCOME_ACK {
		return
	}
	if _, again := l.at[ack.GetEnvoy()]; again || l.version == 0 {
		return
	}
	l.at[ack.GetEnvoy()] = ack.GetAt().AsTime()
	if len(l.at) == l.envoys {
		close(l.whole)
	}
}

// bench publishes rulesets and measures.
type bench struct {
	mesh   mesh
	fleet  *fleet
	relay  *process
	ledger *ledger
	js     jetstream.JetStream
	key    *signingtest.Key // signs as the publisher does
	seeds  []uint64
	now    uint64 // version
}

// publish publishes one version of the kind and waits until it is in force at every Envoy.
func (b *bench) publish(ctx context.Context, kind string) (round, error) {
	b.now++
	changed := b.change(kind)
	value, err := proto.Marshal(b.mesh.ruleset(b.now, b.seeds, time.Hour))
	if err != nil {
		return round{}, err
	}
	before := b.count()
	r := round{kind: kind, cpu: -b.relay.cpu().Seconds(), bytes: -b.fleet.bytes.Load()}
	whole := b.ledger.expect(b.now)
	began := time.Now()
	if _, err := b.js.PublishMsg(ctx, signingtest.Message(b.mesh.home(), b.key.Sign(b.mesh.home(), value))); err != nil {
		return round{}, err
	}
	select {
	case <-whole:
	case <-time.After(30 * time.Second):
		return round{}, b.relay.failure(fmt.Errorf("version %d: %d of %d Envoys in 30 s", b.now, len(b.ledger.at), b.ledger.envoys))
	}
	time.Sleep(300 * time.Millisecond) // late responses are counted too
	r.cpu += b.relay.cpu().Seconds()
	r.rss = b.relay.memory("VmRSS")
	r.bytes += b.fleet.bytes.Load()
	for _, at := range b.ledger.at {
		r.acks = append(r.acks, at.Sub(began).Seconds())
		r.last = max(r.last, at.Sub(began).Seconds())
	}
	for service, responses := range b.count() {
		r.responses += responses - before[service]
		if !changed[service] {
			r.unchanged += responses - before[service]
		}
	}
	return r, nil
}

// change changes the seeds that the kind requires. It returns the services whose rules are
// different now.
func (b *bench) change(kind string) map[string]bool {
	changed := map[string]bool{}
	for i := range b.seeds {
		if kind == changeAll || (kind == changeOne && i == int(b.now)%len(b.seeds)) {
			b.seeds[i]++
			changed[b.mesh.service(i)] = true
		}
	}
	return changed
}

// count returns the number of responses so far, by service.
func (b *bench) count() map[string]int64 {
	out := map[string]int64{}
	for _, e := range b.fleet.envoys {
		out[e.service] += e.responses.Load()
	}
	return out
}
