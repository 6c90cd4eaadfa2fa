package lifecycle

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/testkit"
)

// serving starts a relay and returns when it serves version 3.
func serving(t *testing.T, server *natsserver.Server) (relay.Config, *harness.Relay) {
	t.Helper()
	conf := harness.Config(t, server.ClientURL())
	p := harness.NewPublisher(t, server)
	r := harness.StartRelay(t, conf)
	p.Put(harness.Ruleset(3, time.Minute, 1000, 9000))
	testkit.Eventually(t, "version 3 is served", func() bool { return r.Status().ServedVersion == 3 })
	harness.Kept(t, conf)
	return conf, r
}

// TestRestartWithoutNATS checks that a relay that restarts while NATS is away serves the ruleset
// that it kept. A damaged file is moved aside, and the relay starts without it.
func TestRestartWithoutNATS(t *testing.T) {
	server := harness.StartNATS(t, t.TempDir(), 0)
	conf, first := serving(t, server)
	first.Stop()
	server.Shutdown()
	second := harness.StartRelay(t, conf)
	u := harness.Boot(t, harness.NewSotw(t, harness.At(second), harness.Node("gate", "a")))
	if got := harness.Weights(t, u, "shop", harness.ItemClass); got["shop|south"] != 9000 {
		t.Errorf("weights %v after the restart", got)
	}
	second.Stop()
	testkit.Must(t, os.WriteFile(conf.StateDir+"/signed-ruleset.state", []byte("SPILLWAY-STATE 2 rubbish"), 0o600))
	third := harness.StartRelay(t, conf)
	if status := third.Status(); status.KnownVersion != 0 || status.Counters["state_errors"] != 1 {
		t.Errorf("status %+v with a damaged file", status)
	}
}

// TestRestartKnowsWhatIsInForce checks the case of an Envoy that reconnects to a restarted relay
// and already holds exactly what it serves. The relay reports that ruleset as in force, although
// there is nothing to send.
func TestRestartKnowsWhatIsInForce(t *testing.T) {
	harness.EachVariant(t, func(t *testing.T, open func(*testing.T, *harness.Relay, string) harness.Client) {
		server := harness.StartNATS(t, t.TempDir(), 0)
		conf, first := serving(t, server)
		before := harness.Boot(t, open(t, first, "a"))
		testkit.Eventually(t, "version 3 is in force", func() bool { return first.Status().InForce["gate"] == 3 })
		first.Stop()
		second := harness.StartRelay(t, conf)
		c := open(t, second, "a")
		if delta, ok := c.(*harness.DeltaClient); ok {
			delta.Held = before.Versions
		} else {
			c.Holds(before)
		}
		u := harness.Boot(t, c)
		if delta, ok := c.(*harness.DeltaClient); ok && len(u.Resources)+len(u.Removed) > 0 {
			t.Errorf("%d resources are sent again, and the Envoy holds them: %v", len(u.Resources), delta.Held)
		}
		testkit.Eventually(t, "version 3 is in force again", func() bool { return second.Status().InForce["gate"] == 3 })
	})
}

// TestNATSGoesAndComesBack checks that answers wait in the queue while NATS is away. When NATS is
// back with its store, the same relay stores them, and rulesets arrive again.
func TestNATSGoesAndComesBack(t *testing.T) {
	folder := t.TempDir()
	port := testkit.FreePort(t)
	server := harness.StartNATS(t, folder, port)
	p := harness.NewPublisher(t, server)
	r := harness.StartRelay(t, harness.Config(t, server.ClientURL()))
	p.Put(harness.Ruleset(1, time.Minute, 5000, 5000))
	testkit.Eventually(t, "version 1 is served", func() bool { return r.Status().ServedVersion == 1 })
	server.Shutdown()
	server.WaitForShutdown()
	testkit.Eventually(t, "the relay sees that NATS is away", func() bool { return !r.Status().NatsConnected })
	c := harness.NewDelta(t, harness.At(r), harness.Node("gate", "late"))
	harness.Boot(t, c)
	again := harness.StartNATS(t, folder, port)
	p = harness.NewPublisher(t, again)
	p.Ack(func(a *spillwayv1.Acknowledgement) bool {
		return a.GetEnvoy() == "north/gate/late" && a.GetRulesetVersion() == 1
	})
	p.Put(harness.Ruleset(2, time.Minute, 4000, 6000))
	harness.Expect(t, c, map[string]uint32{"shop|north": 4000, "shop|south": 6000})
}

// TestAValueIsTakenOnce checks that a value is taken once, however often the key is read. Here the
// relay reads it again because of the notification of a write that the bucket refuses.
func TestAValueIsTakenOnce(t *testing.T) {
	t.Parallel()
	p, r := harness.Start(t)
	p.Put(harness.Ruleset(1, time.Minute, 5000, 5000))
	testkit.Eventually(t, "version 1 is served", func() bool { return r.Status().ServedVersion == 1 })
	var reads atomic.Int32
	_, err := p.JetStream.Conn().Subscribe("$JS.API.DIRECT.GET.>", func(*nats.Msg) { reads.Add(1) })
	testkit.Must(t, err)
	testkit.Must(t, p.JetStream.Conn().Flush())
	value, err := proto.Marshal(harness.Ruleset(2, time.Minute, 1000, 9000))
	testkit.Must(t, err)
	if _, err := p.Bucket.Update(t.Context(), "north", value, 99); err == nil {
		t.Fatal("the bucket took a write at a revision that is not there")
	}
	testkit.Eventually(t, "the key is read again, and after that answer again", func() bool { return reads.Load() >= 3 })
	if counters := r.Status().Counters; counters["rulesets_duplicate"] != 0 || counters["rulesets_taken"] != 1 {
		t.Errorf("counters %v", counters)
	}
}

// TestBucketIsMadeAnew checks that the relay finds the new bucket when NATS has lost its store and
// starts again.
func TestBucketIsMadeAnew(t *testing.T) {
	server := harness.StartNATS(t, t.TempDir(), 0)
	p := harness.NewPublisher(t, server)
	r := harness.StartRelay(t, harness.Config(t, server.ClientURL()))
	p.Put(harness.Ruleset(1, time.Minute, 5000, 5000))
	testkit.Eventually(t, "version 1 is served", func() bool { return r.Status().ServedVersion == 1 })
	testkit.Must(t, p.JetStream.DeleteKeyValue(t.Context(), names.NatsBucketRulesets))
	p = harness.NewPublisher(t, server)
	p.Put(harness.Ruleset(2, time.Minute, 4000, 6000))
	testkit.Eventually(t, "version 2 is served", func() bool { return r.Status().ServedVersion == 2 })
}
