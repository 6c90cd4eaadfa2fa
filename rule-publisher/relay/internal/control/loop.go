// Package control is the relay's single event loop. It owns all state that steers, and nothing else
// touches that state. Everything that happens arrives as an event, and what is to be served goes to
// the cache.
package control

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/table"
)

// Ports are the parts of the relay that the loop acts upon.
type Ports struct {
	Cache *serve.Cache
	// Keys returns the keys that are trusted now.
	Keys func() signing.Keys
	// Save stores the ruleset, as it was signed, for the next start. It must not wait for a disk.
	Save func(value signing.Value, version uint64)
	// Acknowledge reports an answer.
	Acknowledge func(*spillwayv1.Acknowledgement)
	// Hold is how long the weights of an expired ruleset still apply, with decreasing effect. 0
	// means not at all.
	Hold     time.Duration
	Counters *count.Counters
	Log      *slog.Logger
}

// Kept is what the relay knew before its restart.
type Kept struct {
	Rules   *table.Rules // the newest one taken; nil: none, or none that can be verified
	Trial   *table.Trial // what is on trial beside it; nil: nothing
	Highest uint64       // highest version ever taken
	Signer  string       // key id of the stored ruleset
}

// Status is what the loop serves now.
type Status struct {
	Version      uint64    // 0: local-first
	KnownVersion uint64    // highest version ever taken, even if it has expired
	ExpiresAt    time.Time // of the newest ruleset
	InputWindow  string
	Services     int    // services that have asked for resources
	Canary       uint64 // version whose trial is served to elected Envoys; 0: none
}

// Loop decides what every service is served.
type Loop struct {
	ports    Ports
	events   chan func()
	done     <-chan struct{}
	status   atomic.Pointer[Status]
	cluster  string
	network  *table.Network
	rules    *table.Rules
	trial    *table.Trial // of the newest ruleset; nil: none
	groups   groups
	highest  uint64 // highest version ever taken; lower ones are refused
	signer   string // key id of the ruleset that was last given to Save
	services map[string]*service
	backends resources.Bundle // clusters and endpoints of everything in `reached`
	reached  *table.Network
	denied   table.Denials // denials that limit where `backends` fail over to
	expiry   *time.Timer
	step     *time.Timer
	serving  uint64
	held     bool     // the ruleset that is served has expired
	skipped  []string // classes of the newest ruleset that cannot be matched

	forgetAfter time.Duration
}

// NewLoop creates a loop that starts from the network and from what was kept before the restart, if
// anything.
func NewLoop(ctx context.Context, ports Ports, network *table.Network, kept Kept) *Loop {
	l := &Loop{ports: ports, events: make(chan func(), 1024), done: ctx.Done(), cluster: network.Cluster,
		network: network, rules: kept.Rules, trial: kept.Trial, groups: groups{of: map[string]*service{}}, highest: kept.Highest, signer: kept.Signer, services: map[string]*service{}, expiry: time.NewTimer(time.Hour), step: time.NewTimer(time.Hour), forgetAfter: forgetAfter}
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

// Status returns the loop's status. It may be called from any goroutine.
func (l *Loop) Status() Status { return *l.status.Load() }

// post gives the loop an event. The loop never waits for its callers, so this cannot deadlock.
func (l *Loop) post(event func()) {
	select {
	case l.events <- event:
	case <-l.done:
	}
}

// rebuild computes every service's target again and starts to serve it.
func (l *Loop) rebuild() {
	now := time.Now()
	version := uint64(0)
	if l.rules != nil && !l.rules.Released(now) {
		version = l.rules.Version
		next := untilNextLook(l.rules, now)
		if l.trial.On(now) {
			next = min(next, l.trial.Until.Sub(now))
		}
		l.expiry.Reset(next)
	}
	l.announce(version, now)
	if denials := l.rules.Denials(); l.reached != l.network || !l.denied.Equal(denials) {
		backends, err := buildBackends(l.network, denials, version, l.backends)
		if err != nil { // rulesets and their expiry go on, with the previous backends
			l.refuse("backends", err)
		} else {
			l.reached, l.denied, l.backends = l.network, denials, backends
		}
	}
	for _, s := range l.services {
		l.retarget(s, now)
	}
	l.regroup(now)
	l.advance(now)
	l.publishStatus(now)
}

// every yields all services, and then all groups on trial.
func (l *Loop) every() iter.Seq[*service] {
	return func(yield func(*service) bool) {
		for _, some := range []map[string]*service{l.services, l.groups.of} {
			for _, s := range some {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// untilNextLook returns the time until the rules expire. After the expiry, it returns a small part
// of their hold time, because the weights change gradually.
func untilNextLook(rules *table.Rules, now time.Time) time.Duration {
	if !rules.Expired(now) {
		return rules.ExpiresAt.Sub(now)
	}
	released := rules.ExpiresAt.Add(rules.Hold).Sub(now)
	return min(max(rules.Hold/256, 100*time.Millisecond), released)
}

// retarget computes the target of one service, or of a group on trial.
func (l *Loop) retarget(s *service, now time.Time) {
	if l.reached == nil {
		return
	}
	rules := l.rules
	if s.elects != nil {
		rules = l.groups.open.Rules
	}
	t, policy := table.Build(s.name, l.reached, rules, now), ""
	if t.Version != 0 {
		policy = rules.Policy
	}
	l.tellAdapted(s, t.Adapted)
	if err := s.want(t, policy, l.reached, l.backends); err != nil {
		l.refuse(s.name, err)
		return
	}
	l.aim(s)
}

// aim sets the service's target to what it wants, without anything that an Envoy refused.
func (l *Loop) aim(s *service) {
	target := s.withoutRefused(s.wanted)
	if err := target.Consistent(); err != nil {
		l.refuse(s.name, err)
		return
	}
	s.target = target
}

// advance serves the next step of every service whose step is due.
func (l *Loop) advance(now time.Time) {
	var next time.Time
	for s := range l.every() {
		if s.elects != nil && l.groups.closing {
			s.follow(l.services[s.name])
		}
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
	if l.dissolved(now) { // another trial may have waited for it
		l.regroup(now)
		l.advance(now)
		l.publishStatus(now)
		return
	}
	if by := l.groups.closeBy; l.groups.closing && (next.IsZero() || by.Before(next)) {
		next = by
	}
	if !next.IsZero() {
		l.step.Reset(next.Sub(now))
	}
}

// tellAdapted counts adapted rules. It logs them once per change, not with every ruleset.
func (l *Loop) tellAdapted(s *service, adapted []string) {
	l.ports.Counters.AddN(count.RulesAdapted, len(adapted))
	l.warn("a rule is adapted", s.adapted, adapted)
	s.adapted = adapted
}

// refuse counts and logs resources that cannot be served.
func (l *Loop) refuse(what string, err error) {
	l.ports.Counters.Add(count.SnapshotsRefused)
	l.ports.Log.Error("resources are not consistent; the old ones stay", "what", what, "error", err)
}

// announce logs each transition between a ruleset, its hold and local-first once.
func (l *Loop) announce(version uint64, now time.Time) {
	expired := l.rules != nil && l.rules.Expired(now)
	if expired && !l.held && (version != 0 || l.serving != 0) {
		l.ports.Counters.Add(count.RulesetsExpired)
		l.ports.Log.Warn("the ruleset has expired; its weights give way to local-first", "ruleset_version", l.rules.Version,
			"from", l.rules.ExpiresAt, "until", l.rules.ExpiresAt.Add(l.rules.Hold))
	}
	switch {
	case version == l.serving:
	case version == 0:
		l.ports.Log.Warn("serving local-first within the denials of the ruleset", "ruleset_version", l.serving)
	case l.serving == 0:
		l.ports.Log.Info("serving a ruleset", "ruleset_version", version)
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
	if l.groups.open != nil && !l.groups.closing {
		status.Canary = l.groups.open.Rules.Version
	}
	l.status.Store(&status)
}
