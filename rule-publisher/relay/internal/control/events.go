package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/table"
)

// rulesetType is the type_url under which the relay itself refuses a ruleset.
const rulesetType = "type.googleapis.com/spillway.v1.Ruleset"

// Ruleset takes a value of this cluster's key: bytes of a spillway.v1.Ruleset. What does not
// decode, breaks the contract or is not newer is counted by reason, and the old one stays.
func (l *Loop) Ruleset(value []byte) {
	l.post(func() { l.takeRuleset(value) })
}

func (l *Loop) takeRuleset(value []byte) {
	ruleset := &spillwayv1.Ruleset{}
	if err := proto.Unmarshal(value, ruleset); err != nil {
		l.refuseRuleset(0, count.RulesetsUndecodable, fmt.Errorf("%d bytes that are no spillway.v1.Ruleset: %w", len(value), err))
		return
	}
	rules, err := table.ParseRules(ruleset, l.cluster)
	if err != nil {
		l.refuseRuleset(ruleset.GetVersion(), count.RulesetsRefused, err)
		return
	}
	if rules.Expired(time.Now()) && l.rules != nil && !l.rules.Expired(time.Now()) {
		l.refuseRuleset(rules.Version, count.RulesetsRefused,
			fmt.Errorf("expires_at: %s is over, and version %d is in force", rules.ExpiresAt.Format(time.RFC3339), l.rules.Version))
		return
	}
	// Once the newest has expired any other is better, also a lower one: versions begin anew when
	// the publisher's store was lost.
	if l.rules != nil && !l.rules.Expired(time.Now()) && rules.Version <= l.rules.Version {
		l.ignore(rules.Version)
		return
	}
	l.rules = rules
	l.ports.Counters.Add(count.RulesetsTaken)
	l.report(nil, rules)
	l.rebuild()
	l.ports.Save(ruleset)
}

func (l *Loop) ignore(version uint64) {
	if version == l.rules.Version {
		l.ports.Counters.Add(count.RulesetsDuplicate)
		return
	}
	l.ports.Counters.Add(count.RulesetsOlder)
	l.ports.Log.Warn("a ruleset older than the one in force is ignored", "version", version, "in_force", l.rules.Version)
}

func (l *Loop) refuseRuleset(version uint64, counter count.Counter, err error) {
	l.ports.Counters.Add(counter)
	detail := bounded(err.Error())
	l.ports.Log.Error("a ruleset is refused; the old one stays", "version", version, "error", detail)
	l.ports.Acknowledge(&spillwayv1.Acknowledgement{
		Cluster: l.cluster, Envoy: l.cluster + "/relay", RulesetVersion: version,
		TypeUrl: rulesetType, Outcome: spillwayv1.Outcome_OUTCOME_NACK, Detail: detail, At: timestamppb.Now(),
	})
}

// Network takes a new version of the topology and endpoints.
func (l *Loop) Network(network *table.Network) {
	l.post(func() {
		l.network = network
		l.ports.Log.Info("topology and endpoints reloaded", "services", len(network.Services()))
		l.report(network, nil)
		l.rebuild()
	})
}

// Observer is the loop as the streams see it.
func (l *Loop) Observer() serve.Observer { return observer{l} }

type observer struct{ loop *Loop }

// Connected makes the service's resources when it is new.
func (o observer) Connected(service, envoy string) {
	o.loop.post(func() { o.loop.connected(service, envoy) })
}

// Disconnected forgets the Envoy.
func (o observer) Disconnected(service, envoy string) {
	o.loop.post(func() { o.loop.disconnected(service, envoy) })
}

// Answered reports the answer, and takes back what was refused. An Envoy may ask for types that
// nobody serves; what it says to the empty response is about no ruleset.
func (o observer) Answered(answer serve.Answer) {
	if !slices.Contains(types, answer.TypeURL) {
		return
	}
	o.loop.ports.Acknowledge(acknowledgement(o.loop.cluster, answer))
	o.loop.post(func() { o.loop.answered(answer) })
}

func (l *Loop) answered(answer serve.Answer) {
	outcome := count.AnswersAccepted
	if answer.Refused {
		outcome = count.AnswersRefused
		l.ports.Log.Error("an Envoy refused a version", "envoy", answer.Envoy, "type", answer.TypeURL,
			"version", answer.Version, "detail", answer.Detail)
	}
	l.ports.Counters.Add(outcome)
	s := l.services[answer.Service]
	if s == nil {
		return
	}
	if now := time.Now(); s.answered(answer, now) && s.wanted != nil {
		l.aim(s)
		l.advance(now)
	}
	l.confirm(s)
}

func acknowledgement(cluster string, a serve.Answer) *spillwayv1.Acknowledgement {
	outcome := spillwayv1.Outcome_OUTCOME_ACK
	if a.Refused {
		outcome = spillwayv1.Outcome_OUTCOME_NACK
	}
	return &spillwayv1.Acknowledgement{
		Cluster: cluster, Service: a.Service, Envoy: a.Envoy, RulesetVersion: serve.RulesetVersion(a.Version),
		TypeUrl: a.TypeURL, Outcome: outcome, Detail: a.Detail, At: timestamppb.Now(),
	}
}

// report says what of new inputs cannot be used.
func (l *Loop) report(network *table.Network, rules *table.Rules) {
	if network != nil {
		for _, text := range network.Unreachable {
			l.ports.Counters.Add(count.EndpointsUnreachable)
			l.ports.Log.Warn("endpoints cannot be routed to", "endpoints", text)
		}
	}
	if rules != nil {
		l.ports.Counters.AddN(count.ClassesSkipped, len(rules.Skipped))
		l.warn("a traffic class is routed as catch-all", l.skipped, rules.Skipped)
		l.skipped = rules.Skipped
	}
}

// warn of what is new in a list, and of no more than a person reads: the same ruleset comes again and
// again, and a broken one can have thousands of faults.
func (l *Loop) warn(what string, before, now []string) {
	const most = 20
	known := make(map[string]bool, len(before))
	for _, text := range before {
		known[text] = true
	}
	told := 0
	for _, text := range now {
		if known[text] {
			continue
		}
		if told++; told > most {
			l.ports.Log.Warn(what+", and others", "most", most, "all", len(now))
			return
		}
		l.ports.Log.Warn(what, "reason", bounded(text))
	}
}

// bounded text can be stored whatever a ruleset has in it.
func bounded(text string) string {
	const most = 4096 // bytes
	if len(text) > most {
		text = text[:most] + " …"
	}
	return strings.ToValidUTF8(text, "?")
}
