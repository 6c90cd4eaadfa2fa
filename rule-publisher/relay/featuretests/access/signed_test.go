package access

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/signing/signingtest"
	"spillway.dev/relay/internal/testkit"
)

// payload returns the bytes of a ruleset that would move all requests.
func payload(t *testing.T, version uint64, lasting time.Duration, weights ...uint32) []byte {
	t.Helper()
	value, err := proto.Marshal(harness.Ruleset(version, lasting, weights...))
	testkit.Must(t, err)
	return value
}

// TestRealEnvoyIsNotMovedByWhoeverWritesToTheBus writes the cluster's key as someone with every
// right on NATS. The values are unsigned, signed by an untrusted key, signed for another cluster,
// in force earlier, or expired. None of them changes anything in a real Envoy. Each is counted by
// its reason and reported as a NACK. The publisher's next ruleset is taken.
func TestRealEnvoyIsNotMovedByWhoeverWritesToTheBus(t *testing.T) {
	server := harness.StartNATS(t, t.TempDir(), 0)
	p, conf, north := harness.Shop(t, server, 1)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	before := harness.PublisherKey.Sign("north", payload(t, 1, time.Hour, 1000, 9000))
	p.PutSigned(before)
	testkit.Eventually(t, "version 1 is in force", func() bool { return harness.WeightsAre(e, 1000, 9000) })
	p.Put(harness.Ruleset(2, time.Hour, 6000, 4000))
	testkit.Eventually(t, "version 2 is in force", func() bool { return harness.WeightsAre(e, 6000, 4000) })
	away, stranger := payload(t, 3, time.Hour, 0, 10000), signingtest.NewKey()
	good := harness.PublisherKey.Sign("north", away)
	posing := stranger.Sign("north", away)
	posing.KeyID = harness.PublisherKey.ID
	for _, attack := range []struct {
		name    string
		value   signing.Value
		counter count.Counter
		detail  string
	}{
		{"unsigned", signing.Value{Payload: away}, count.RulesetsUnsigned, "not signed"},
		{"another key", stranger.Sign("north", away), count.RulesetsUnknownKey, "trusted: " + harness.PublisherKey.ID},
		{"another key in the publisher's name", posing, count.RulesetsBadSignature, "the signature does not match this value"},
		{"a genuine signature of something else", signing.Value{Payload: away, Signature: before.Signature, KeyID: before.KeyID}, count.RulesetsBadSignature, "the signature does not match this value"},
		{"one byte changed", signing.Value{Payload: append([]byte{away[0] ^ 1}, away[1:]...), Signature: good.Signature, KeyID: good.KeyID}, count.RulesetsBadSignature, "the signature does not match this value"},
		{"south's", harness.PublisherKey.Sign("south", away), count.RulesetsOtherCluster, "signed for another cluster: south"},
		{"the one before", before, count.RulesetsReplayed, "version: 1; must be above 2, which was taken before"},
		{"an expired one", harness.PublisherKey.Sign("north", payload(t, 3, -time.Minute, 0, 10000)), count.RulesetsStale, "must be in the future"},
		{"one that would keep out all after it", harness.PublisherKey.Sign("north", payload(t, 1<<53, time.Hour, 0, 10000)), count.RulesetsRefused, "ahead of this relay's clock"},
	} {
		t.Run(attack.name, func(t *testing.T) {
			p.T = t
			counted := r.Counters().Get(attack.counter)
			p.PutSigned(attack.value)
			testkit.Eventually(t, attack.counter.String()+" is counted", func() bool { return r.Counters().Get(attack.counter) == counted+1 })
			p.Ack(func(a *spillwayv1.Acknowledgement) bool {
				return a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK && a.GetEnvoy() == "north/relay" && strings.Contains(a.GetDetail(), attack.detail)
			})
			if !harness.WeightsAre(e, 6000, 4000) || r.Status().ServedVersion != 2 {
				t.Errorf("version %d is served", r.Status().ServedVersion)
			}
		})
	}
	p.T = t
	if taken := r.Counters().Get(count.RulesetsTaken); taken != 2 {
		t.Errorf("%d rulesets were taken", taken)
	}
	p.Put(harness.Ruleset(3, time.Hour, 3000, 7000))
	testkit.Eventually(t, "the publisher's next is in force", func() bool { return harness.WeightsAre(e, 3000, 7000) })
}

// TestKeysAreRotatedWithoutDowntime checks a rotation while rulesets continue. The new key is
// added, the publisher signs with it, and the old key is removed. After that, signatures of the old
// key are not valid. An invalid file changes nothing and is counted. The ruleset of a publisher
// that switched too early is taken as soon as its key is there.
func TestKeysAreRotatedWithoutDowntime(t *testing.T) {
	server := harness.StartNATS(t, t.TempDir(), 0)
	p, conf, north := harness.Shop(t, server, 1)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	requests := harness.KeepAsking(t, e)
	version := uint64(0)
	inForce := func(key *signingtest.Key, what string) {
		t.Helper()
		version++
		share := uint32(version * 1000)
		p.PutSigned(key.Sign("north", payload(t, version, time.Hour, share, 10000-share)))
		testkit.Eventually(t, what, func() bool { return harness.WeightsAre(e, int(share), int(10000-share)) })
	}
	inForce(harness.PublisherKey, "a ruleset of the old key, at first")
	next := signingtest.NewKey()
	testkit.Replace(t, conf.RulesetKeys, "rubbish")
	r.Counted("ruleset_keys_refused", 1)
	inForce(harness.PublisherKey, "a ruleset of the old key, with a bad file")

	early := next.Sign("north", payload(t, version+1, time.Hour, 9000, 1000))
	p.PutSigned(early)
	r.Counted("rulesets_unknown_key", 1)
	testkit.Replace(t, conf.RulesetKeys, string(harness.PublisherKey.PEM)+string(next.PEM))
	testkit.Eventually(t, "what came before its key", func() bool { return harness.WeightsAre(e, 9000, 1000) })
	version++
	inForce(harness.PublisherKey, "a ruleset of the old key, beside the new one")
	inForce(next, "a ruleset of the new key")
	testkit.Replace(t, conf.RulesetKeys, string(next.PEM))
	r.Counted("ruleset_keys_taken", 2)
	p.PutSigned(harness.PublisherKey.Sign("north", payload(t, version+1, time.Hour, 0, 10000)))
	r.Counted("rulesets_unknown_key", 2)
	inForce(next, "a ruleset of the new key, alone")
	if asked, failed := requests(); failed != 0 || asked == 0 {
		t.Errorf("%d of %d requests failed", failed, asked)
	}
}

// TestARestartForgetsNeitherFloorNorKeys checks that a restarted relay continues from its disk. The
// stored ruleset is verified as if it came over NATS. Its version is the floor, even when its key
// has been removed or the ruleset has expired.
func TestARestartForgetsNeitherFloorNorKeys(t *testing.T) {
	p, r := harness.Start(t)
	conf := r.Config
	p.Put(harness.Ruleset(7, 10*time.Second, 5000, 5000))
	r.Counted("rulesets_taken", 1)
	harness.Kept(t, conf)
	r.Stop()
	older := harness.PublisherKey.Sign("north", payload(t, 6, time.Hour, 0, 10000))
	p.PutSigned(older)

	r = harness.StartRelay(t, conf)
	r.Counted("rulesets_replayed", 1)
	testkit.Eventually(t, "version 7 has expired", func() bool { return r.Status().ServedVersion == 0 })
	p.PutSigned(older)
	r.Counted("rulesets_replayed", 2)
	r.Stop()

	next := signingtest.NewKey()
	testkit.Must(t, os.WriteFile(conf.RulesetKeys, next.PEM, 0o600))
	p.PutSigned(next.Sign("north", payload(t, 6, time.Hour, 0, 10000)))
	r = harness.StartRelay(t, conf)
	r.Counted("rulesets_replayed", 1)
	if status := r.Status(); status.Counters["state_errors"] != 1 || status.KnownVersion != 7 || status.ServedVersion != 0 {
		t.Errorf("status %+v", status)
	}
	// The publisher has signed what was in force again: the same version, verified now.
	p.PutSigned(next.Sign("north", payload(t, 7, time.Hour, 5000, 5000)))
	r.Counted("rulesets_taken", 1)
	r.Stop()
}

// TestASecondSignatureIsKept checks that a ruleset in force that another key signs again is kept
// with the new signature. Then the old key can be removed, and the relay can restart without NATS.
func TestASecondSignatureIsKept(t *testing.T) {
	server := harness.StartNATS(t, t.TempDir(), 0)
	p, conf := harness.NewPublisher(t, server), harness.Config(t, server.ClientURL())
	next, same := signingtest.NewKey(), payload(t, 1, time.Hour, 5000, 5000)
	testkit.Must(t, os.WriteFile(conf.RulesetKeys, append(append([]byte{}, harness.PublisherKey.PEM...), next.PEM...), 0o600))
	r := harness.StartRelay(t, conf)
	p.PutSigned(harness.PublisherKey.Sign("north", same))
	r.Counted("rulesets_taken", 1)
	p.PutSigned(next.Sign("north", same))
	r.Counted("rulesets_duplicate", 1)
	r.Stop()
	server.Shutdown()
	testkit.Must(t, os.WriteFile(conf.RulesetKeys, next.PEM, 0o600))
	if status := harness.StartRelay(t, conf).Status(); status.ServedVersion != 1 {
		t.Errorf("status %+v", status)
	}
}

// TestAFreshRelayTakesNothingExpired checks that a relay without state refuses an expired ruleset
// with a valid signature, and takes the next one.
func TestAFreshRelayTakesNothingExpired(t *testing.T) {
	server := harness.StartNATS(t, t.TempDir(), 0)
	p := harness.NewPublisher(t, server)
	p.Put(harness.Ruleset(5, -time.Second, 0, 10000))
	r := harness.StartRelay(t, harness.Config(t, server.ClientURL()))
	r.Counted("rulesets_stale", 1)
	if status := r.Status(); status.KnownVersion != 0 {
		t.Errorf("status %+v", status)
	}
	p.Put(harness.Ruleset(6, time.Minute, 5000, 5000))
	r.Counted("rulesets_taken", 1)
}

// TestVersionsThatAreTimes checks that versions that are Unix milliseconds, which are very large
// numbers, fit into Envoy's metadata.
func TestVersionsThatAreTimes(t *testing.T) {
	server := harness.StartNATS(t, t.TempDir(), 0)
	p, conf, north := harness.Shop(t, server, 1)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	version := uint64(time.Now().UnixMilli())
	p.Put(harness.Ruleset(version, time.Hour, 6000, 4000))
	testkit.Eventually(t, "it is in force", func() bool { return harness.WeightsAre(e, 6000, 4000) })
	dump := strings.Join(strings.Fields(e.Get("/config_dump?resource=dynamic_route_configs")), "")
	if want := fmt.Sprintf(`"ruleset_version":%d`, version); !strings.Contains(dump, want) {
		t.Errorf("%s is missing in %s", want, dump)
	}
}
