// Package control is the relay's one loop: all state that steers lives here and is touched by it
// alone. Everything that happens comes in as an event; what shall be served goes out to the cache.
package control

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/table"
)

// Ports are what the loop acts upon.
type Ports struct {
	Cache *serve.Cache
	// Keys whose signatures count now.
	Keys func() signing.Keys
	// Save keeps the ruleset over restarts, as it was signed. It must not wait for a disk.
	Save func(value signing.Value, version uint64)
	// Acknowledge reports an answer.
	Acknowledge func(*spillwayv1.Acknowledgement)
	// Hold is how long the weights of an expired ruleset still steer, less and less; 0: not at all.
	Hold     time.Duration
	Counters *count.Counters
	Log      *slog.Logger
}

// Kept is what the relay knew before its restart.
type Kept struct {
	Rules   *table.Rules // the newest taken; nil: none, or none that can be verified
	Highest uint64       // version ever taken
	Signer  string       // key id of what is kept
}

// Status is what the loop serves now.
type Status struct {
	Version      uint64    // 0: local-first
	KnownVersion uint64    // highest version ever taken, also when it has expired
	ExpiresAt    time.Time // of the newest ruleset
	InputWindow  string
	Services     int // that have asked for resources
}

// Loop steers.
type Loop struct {
	ports    Ports
	events   chan func()
	done     <-chan struct{}
	status   atomic.Pointer[Status]
	cluster  string
	network  *table.Network
	rules    *table.Rules
	highest  uint64 // version ever taken: only higher ones are
	signer   string // key id of what was given to be kept
	services map[string]*service
	backends serve.Bundle // clusters and endpoints of everything in `reached`
	reached  *table.Network
	denied   table.Denials // within which `backends` fail over
	expiry   *time.Timer
	step     *time.Timer
	serving  uint64
	held     bool     // what is served has expired
	skipped  []string // classes of the newest ruleset

	forgetAfter time.Duration
}

// NewLoop starts from the network and what is kept from before, if anything.
func NewLoop(ctx context.Context, ports Ports, network *table.Network, kept Kept) *Loop {
	l := &Loop{ports: ports, events: make(chan func(), 1024), done: ctx.Done(), cluster: network.Cluster,
		network: network, rules: kept.Rules, highest: kept.Highest, signer: kept.Signer, services: map[string]*service{}, expiry: time.NewTimer(time.Hour), step: time.NewTimer(time.Hour), forgetAfter: forgetAfter}
	if l.rules != nil {
		l.rules.Hold = ports.Hold
	}
	l.report(network, kept.Rules)
	l.publishStatus(time.Now())
	return l
}

// Run handles events until the context ends.
func (l *Loop) Run(ctx context.Context) {
	l.rebuild()
	forget := time.NewTicker(l.forgetAfter / 4)
	defer forget.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-l.events:
			event()
		case <-l.expiry.C:
			l.rebuild()
		case <-l.step.C:
			l.advance(time.Now())
		case now := <-forget.C:
			l.forget(now)
		}
	}
}

// Status of the loop, from any goroutine.
func (l *Loop) Status() Status { return *l.status.Load() }

// post gives the loop an event. The loop never waits for its callers, so this cannot lock up.
func (l *Loop) post(event func()) {
	select {
	case l.events <- event:
	case <-l.done:
	}
}

// rebuild makes every service's target anew and begins to serve it.
func (l *Loop) rebuild() {
	now := time.Now()
	version := uint64(0)
	if l.rules != nil && !l.rules.Released(now) {
		version = l.rules.Version
		l.expiry.Reset(untilNextLook(l.rules, now))
	}
	l.announce(version, now)
	if denials := l.rules.Denials(); l.reached != l.network || !l.denied.Equal(denials) {
		backends, err := buildBackends(l.network, denials, version, l.backends)
		if err != nil { // rulesets and their expiry go on, with what was reached before
			l.refuse("backends", err)
		} else {
			l.reached, l.denied, l.backends = l.network, denials, backends
		}
	}
	for _, s := range l.services {
		l.retarget(s, now)
	}
	l.advance(now)
	l.publishStatus(now)
}

// untilNextLook is until the rules expire, and from then on a small part of the time for which they are held.
func untilNextLook(rules *table.Rules, now time.Time) time.Duration {
	if !rules.Expired(now) {
		return rules.ExpiresAt.Sub(now)
	}
	released := rules.ExpiresAt.Add(rules.Hold).Sub(now)
	return min(max(rules.Hold/256, 100*time.Millisecond), released)
}

// retarget makes one service's target.
func (l *Loop) retarget(s *service, now time.Time) {
	if l.reached == nil {
		return
	}
	t, policy := table.Build(s.name, l.reached, l.rules, now), ""
	if t.Version != 0 {
		policy = l.rules.Policy
	}
	l.tellAdapted(s, t.Adapted)
	if err := s.want(t, policy, l.reached, l.backends); err != nil {
		l.refuse(s.name, err)
		return
	}
	l.aim(s)
}

// aim at what the service wants and no Envoy refused.
func (l *Loop) aim(s *service) {
	target := s.withoutRefused(s.wanted)
	if err := target.Consistent(); err != nil {
		l.refuse(s.name, err)
		return
	}
	s.target = target
}

// advance serves every service's next step that is due.
func (l *Loop) advance(now time.Time) {
	var next time.Time
	for _, s := range l.services {
		if s.target == nil {
			continue
		}
		due, err := s.advance(l.ports.Cache, now)
		if err != nil {
			l.refuse(s.name, err)
		}
		l.confirm(s)
		if next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	if !next.IsZero() {
		l.step.Reset(next.Sub(now))
	}
}

// tellAdapted logs once per change, not with every ruleset.
func (l *Loop) tellAdapted(s *service, adapted []string) {
	l.ports.Counters.AddN(count.RulesAdapted, len(adapted))
	l.warn("a rule cannot be followed to the letter", s.adapted, adapted)
	s.adapted = adapted
}

func (l *Loop) refuse(what string, err error) {
	l.ports.Counters.Add(count.SnapshotsRefused)
	l.ports.Log.Error("resources are not consistent; the old ones stay", "what", what, "error", err)
}

// announce logs each change between a ruleset, its hold and local-first once.
func (l *Loop) announce(version uint64, now time.Time) {
	expired := l.rules != nil && l.rules.Expired(now)
	if expired && !l.held && (version != 0 || l.serving != 0) {
		l.ports.Counters.Add(count.RulesetsExpired)
		l.ports.Log.Warn("the ruleset has expired; its weights give way to local-first", "version", l.rules.Version,
			"from", l.rules.ExpiresAt, "until", l.rules.ExpiresAt.Add(l.rules.Hold))
	}
	switch {
	case version == l.serving:
	case version == 0:
		l.ports.Log.Warn("serving local-first within the denials of the ruleset", "version", l.serving)
	case l.serving == 0:
		l.ports.Log.Info("serving a ruleset", "version", version)
	}
	l.serving, l.held = version, expired
}

func (l *Loop) publishStatus(now time.Time) {
	status := Status{Services: len(l.services), KnownVersion: l.highest}
	if l.rules != nil {
		status.ExpiresAt, status.InputWindow = l.rules.ExpiresAt, l.rules.InputWindow
		if !l.rules.Released(now) {
			status.Version = l.rules.Version
		}
	}
	l.status.Store(&status)
}
