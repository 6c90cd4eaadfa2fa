package protocol

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/testkit"
)

// TestACanaryReachesTheElectedEnvoyAlone checks a trial over NATS and xDS. With a share of half,
// north/gate/a is elected and north/gate/c is not. The one gets the ruleset on trial and its answer
// returns with the version; the other is sent nothing, and the relay answers in its place. The
// heartbeat names the trial, and the next ruleset ends it.
func TestACanaryReachesTheElectedEnvoyAlone(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		server := harness.StartNATS(t, t.TempDir(), 0)
		r := harness.StartRelay(t, harness.Config(t, server.ClientURL()))
		p := harness.NewPublisher(t, server)
		elected, other := open(t, r, "a"), open(t, r, "c")
		harness.Boot(t, elected)
		harness.Boot(t, other)
		before := map[string]uint32{"shop|north": 9000, "shop|south": 1000}
		p.Put(harness.Ruleset(5, time.Minute, 9000, 1000))
		harness.Expect(t, elected, before)
		harness.Expect(t, other, before)
		onTrial := harness.Ruleset(6, time.Minute, 9000, 1000)
		onTrial.Canary = &spillwayv1.Canary{Ruleset: harness.Ruleset(6, time.Minute, 1000, 9000), Share: 5000,
			Until: timestamppb.New(time.Now().Add(time.Minute))}
		p.Put(onTrial)
		harness.Expect(t, elected, map[string]uint32{"shop|north": 1000, "shop|south": 9000})
		harness.Silent(t, other)
		for envoy, detail := range map[string]string{"a": "", "c": "unchanged since version 5, which this Envoy accepted"} {
			p.Ack(func(a *spillwayv1.Acknowledgement) bool {
				return a.GetEnvoy() == "north/gate/"+envoy && a.GetRulesetVersion() == 6 && a.GetDetail() == detail
			})
		}
		p.Reports("spillway.heartbeats.north", func(data []byte) bool {
			h := &spillwayv1.Heartbeat{}
			testkit.Must(t, proto.Unmarshal(data, h))
			return h.GetRulesetVersion() == 6 && h.GetCanaryVersion() == 6
		})
		p.Put(harness.Ruleset(7, time.Minute, 9000, 1000))
		harness.Expect(t, elected, before)
		harness.Silent(t, other)
	})
}
