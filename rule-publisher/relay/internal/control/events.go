package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/table"
)

// rulesetType is the type_url of acknowledgements in which the relay itself refuses a ruleset.
const rulesetType = "type.googleapis.com/spillway.v1.Ruleset"

// furthestAhead bounds how far ahead of this relay's clock a version, in Unix milliseconds, may be.
// A very high version would block all later ones. Neither a former holder of the signing key nor a
// publisher with a wrong clock may leave one behind.
const furthestAhead = names.ValueVersionAheadMs * time.Millisecond

// Ruleset handles a new value of this cluster's key. A value that no trusted key has signed for
// this cluster is not even decoded. A value is also refused when it does not decode, breaks the
// contract, has expired, or is older than the highest version taken before. Each refusal is counted
// by reason, and the previous ruleset stays.
func (l *Loop) Ruleset(value signing.Value) {
	l.post(func() { l.takeRuleset(value) })
}

func (l *Loop) takeRuleset(value signing.Value) {
	if err := l.ports.Keys().Verify(l.cluster, l.network.Clusters, value); err != nil {
		l.refuseRuleset(0, unverified(err), err)
		return
	}
	ruleset := &spillwayv1.Ruleset{}
	if err := proto.Unmarshal(value.Payload, ruleset); err != nil {
		l.refuseRuleset(0, count.RulesetsUndecodable, fmt.Errorf("%d bytes; must be a spillway.v1.Ruleset: %w", len(value.Payload), err))
		return
	}
	rules, err := table.ParseRules(ruleset, l.cluster)
	if err == nil {
		err = ahead(rules.Version, time.Now())
	}
	var trial *table.Trial
	if err == nil {
		trial, err = table.ParseTrial(ruleset, rules, l.cluster)
	}
	switch {
	case err != nil:
		l.refuseRuleset(ruleset.GetVersion(), count.RulesetsRefused, err)
	case rules.Version < l.highest:
		// Refused even if that version expired long ago: anyone who may write to NATS must not
		// bring back an old ruleset.
		l.refuseRuleset(rules.Version, count.RulesetsReplayed, fmt.Errorf("version: %d; must be above %d, which was taken before", rules.Version, l.highest))
	case rules.Version == l.highest && l.rules != nil:
		l.ports.Counters.Add(count.RulesetsDuplicate)
		l.keep(value)
	case rules.Expired(time.Now()):
		l.refuseRuleset(rules.Version, count.RulesetsStale, fmt.Errorf("expires_at: %s; must be in the future", rules.ExpiresAt.Format(time.RFC3339)))
	default:
		rules.Hold = l.ports.Hold
		l.rules, l.trial, l.highest, l.signer = rules, trial, rules.Version, ""
		l.ports.Counters.Add(count.RulesetsTaken)
		l.report(nil, rules)
		l.rebuild()
		l.keep(value)
	}
}

// ahead returns an error when the version is too far ahead of the clock.
func ahead(version uint64, now time.Time) error {
	if latest := uint64(now.Add(furthestAhead).UnixMilli()); version > latest {
		return fmt.Errorf("version: %d; must be at most %d: Unix milliseconds, at most %s ahead of this relay's clock", version, latest, furthestAhead)
	}
	return nil
}

// keep saves the newest ruleset. It saves the ruleset again when another key has signed it, because
// that signature will be valid for longer.
func (l *Loop) keep(value signing.Value) {
	if value.KeyID != l.signer {
		l.signer = value.KeyID
		l.ports.Save(value, l.highest)
	}
}

// unverified returns the counter for an error of Verify.
func unverified(err error) count.Counter {
	switch {
	case errors.Is(err, signing.ErrUnsigned):
		return count.RulesetsUnsigned
	case errors.Is(err, signing.ErrUnknownKey):
		return count.RulesetsUnknownKey
	case errors.Is(err, signing.ErrOtherCluster):
		return count.RulesetsOtherCluster
	}
	return count.RulesetsBadSignature
}

// refuseRuleset counts, logs and acknowledges the refusal of a ruleset.
func (l *Loop) refuseRuleset(version uint64, counter count.Counter, err error) {
	l.ports.Counters.Add(counter)
	detail := bounded(err.Error())
	l.ports.Log.Error("a ruleset is refused; the old one stays", "ruleset_version", version, "error", detail)
	l.ports.Acknowledge(&spillwayv1.Acknowledgement{
		Cluster: l.cluster, Envoy: l.cluster + "/relay", RulesetVersion: version,
		TypeUrl: rulesetType, Outcome: spillwayv1.Outcome_OUTCOME_NACK, Detail: detail, At: timestamppb.Now(),
	})
}

// Network handles a new version of the topology and endpoints.
func (l *Loop) Network(network *table.Network) {
	l.post(func() {
		l.network = network
		l.ports.Log.Info("topology and endpoints reloaded", "services", len(network.Services()))
		l.report(network, nil)
		l.rebuild()
	})
}

// Observer returns the loop as an observer of the streams.
func (l *Loop) Observer() serve.Observer { return observer{l} }

type observer struct{ loop *Loop }

// Connected builds the service's resources when the service is new.
func (o observer) Connected(service, envoy string) {
	o.loop.post(func() { o.loop.connected(service, envoy) })
}

// Disconnected removes the Envoy.
func (o observer) Disconnected(service, envoy string) {
	o.loop.post(func() { o.loop.disconnected(service, envoy) })
}

// Answered reports the answer and takes back what was refused. An Envoy may ask for types that the
// relay does not serve; its answer to the empty response says nothing about a ruleset and is
// ignored.
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
	s := l.member(answer.Service, answer.Envoy)
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
		Cluster: cluster, Service: a.Service, Envoy: a.Envoy, RulesetVersion: resources.RulesetVersion(a.Version),
		TypeUrl: a.TypeURL, Outcome: outcome, Detail: a.Detail, At: timestamppb.Now(),
	}
}

// report counts and logs the parts of new inputs that cannot be used.
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

// warn logs the new entries of a list, at most as many as a person reads. The same ruleset comes
// again and again, and a broken one can have thousands of faults.
func (l *Loop) warn(what string, before, now []string) {
	const most = 20
	known := make(map[string]bool, len(before))
	for _, text := range before {
		known[text] = true
	}
	reported := 0
	for _, text := range now {
		if known[text] {
			continue
		}
		if reported++; reported > most {
			l.ports.Log.Warn(what+", and others", "most", most, "all", len(now))
			return
		}
		l.ports.Log.Warn(what, "reason", bounded(text))
	}
}

// bounded truncates the text and makes it valid UTF-8, so that it can be stored whatever a ruleset
// contains.
func bounded(text string) string {
	const most = 4096 // bytes
	if len(text) > most {
		text = text[:most] + " …"
	}
	return strings.ToValidUTF8(text, "?")
}
