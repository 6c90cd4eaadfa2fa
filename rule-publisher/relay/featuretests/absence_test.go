package featuretests

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/testkit"
)

// serving starts a relay and returns when it serves version 3.
func serving(t *testing.T, server *natsserver.Server) (relay.Config, *running) {
	t.Helper()
	conf := testConfig(t, server.ClientURL())
	p := newPublisher(t, server)
	r := startRelay(t, conf)
	p.put(ruleset(3, time.Minute, 1000, 9000))
	eventually(t, "version 3 is served", func() bool { return r.status().ServedVersion == 3 })
	kept(t, conf)
	return conf, r
}

// kept waits until the first ruleset is on disk. A stopping relay waits only for a limited time for
// a slow disk.
func kept(t *testing.T, conf relay.Config) {
	t.Helper()
	eventually(t, "the ruleset is on disk", func() bool {
		_, err := os.Stat(filepath.Join(conf.StateDir, "signed-ruleset.state"))
		return err == nil
	})
}

// TestRestartWithoutNATS checks that a relay that restarts while NATS is away serves the ruleset
// that it kept. A damaged file is moved aside, and the relay starts without it.
func TestRestartWithoutNATS(t *testing.T) {
	server := startNATS(t, t.TempDir(), 0)
	conf, first := serving(t, server)
	first.stop()
	server.Shutdown()
	second := startRelay(t, conf)
	u := boot(t, newSotw(t, at(second), node("gate", "a")))
	if got := weights(t, u, "shop", itemClass); got["shop|south"] != 9000 {
		t.Errorf("weights %v after the restart", got)
	}
	second.stop()
	must(t, os.WriteFile(conf.StateDir+"/signed-ruleset.state", []byte("SPILLWAY-STATE 2 rubbish"), 0o600))
	third := startRelay(t, conf)
	if status := third.status(); status.KnownVersion != 0 || status.Counters["state_errors"] != 1 {
		t.Errorf("status %+v with a damaged file", status)
	}
}

// TestRestartKnowsWhatIsInForce checks the case of an Envoy that reconnects to a restarted relay
// and already holds exactly what it serves. The relay reports that ruleset as in force, although
// there is nothing to send.
func TestRestartKnowsWhatIsInForce(t *testing.T) {
	eachVariant(t, func(t *testing.T, open func(*testing.T, *running, string) client) {
		server := startNATS(t, t.TempDir(), 0)
		conf, first := serving(t, server)
		before := boot(t, open(t, first, "a"))
		eventually(t, "version 3 is in force", func() bool { return first.status().InForce["gate"] == 3 })
		first.stop()
		second := startRelay(t, conf)
		c := open(t, second, "a")
		if delta, ok := c.(*deltaClient); ok {
			delta.held = before.versions
		} else {
			c.holds(before)
		}
		u := boot(t, c)
		if delta, ok := c.(*deltaClient); ok && len(u.resources)+len(u.removed) > 0 {
			t.Errorf("%d resources are sent again, and the Envoy holds them: %v", len(u.resources), delta.held)
		}
		eventually(t, "version 3 is in force again", func() bool { return second.status().InForce["gate"] == 3 })
	})
}

// TestNATSGoesAndComesBack checks that answers wait in the queue while NATS is away. When NATS is
// back with its store, the same relay stores them, and rulesets arrive again.
func TestNATSGoesAndComesBack(t *testing.T) {
	folder := t.TempDir()
	port := testkit.FreePort(t)
	server := startNATS(t, folder, port)
	p := newPublisher(t, server)
	r := startRelay(t, testConfig(t, server.ClientURL()))
	p.put(ruleset(1, time.Minute, 5000, 5000))
	eventually(t, "version 1 is served", func() bool { return r.status().ServedVersion == 1 })
	server.Shutdown()
	server.WaitForShutdown()
	eventually(t, "the relay sees that NATS is away", func() bool { return !r.status().NatsConnected })
	c := newDelta(t, at(r), node("gate", "late"))
	boot(t, c)
	again := startNATS(t, folder, port)
	p = newPublisher(t, again)
	p.ack(func(a *spillwayv1.Acknowledgement) bool {
		return a.GetEnvoy() == "north/gate/late" && a.GetRulesetVersion() == 1
	})
	p.put(ruleset(2, time.Minute, 4000, 6000))
	expect(t, c, map[string]uint32{"shop|north": 4000, "shop|south": 6000})
}

// TestAValueIsTakenOnce checks that a value is taken once, however often the key is read. Here the
// relay reads it again because of the notification of a write that the bucket refuses.
func TestAValueIsTakenOnce(t *testing.T) {
	t.Parallel()
	server := startNATS(t, t.TempDir(), 0)
	p := newPublisher(t, server)
	r := startRelay(t, testConfig(t, server.ClientURL()))
	p.put(ruleset(1, time.Minute, 5000, 5000))
	eventually(t, "version 1 is served", func() bool { return r.status().ServedVersion == 1 })
	var reads atomic.Int32
	_, err := p.js.Conn().Subscribe("$JS.API.DIRECT.GET.>", func(*nats.Msg) { reads.Add(1) })
	must(t, err)
	must(t, p.js.Conn().Flush())
	value, err := proto.Marshal(ruleset(2, time.Minute, 1000, 9000))
	must(t, err)
	if _, err := p.bucket.Update(t.Context(), "north", value, 99); err == nil {
		t.Fatal("the bucket took a write at a revision that is not there")
	}
	eventually(t, "the key is read again, and after that answer again", func() bool { return reads.Load() >= 3 })
	if counters := r.status().Counters; counters["rulesets_duplicate"] != 0 || counters["rulesets_taken"] != 1 {
		t.Errorf("counters %v", counters)
	}
}

// TestBucketIsMadeAnew checks that the relay finds the new bucket when NATS has lost its store and
// starts again.
func TestBucketIsMadeAnew(t *testing.T) {
	server := startNATS(t, t.TempDir(), 0)
	p := newPublisher(t, server)
	r := startRelay(t, testConfig(t, server.ClientURL()))
	p.put(ruleset(1, time.Minute, 5000, 5000))
	eventually(t, "version 1 is served", func() bool { return r.status().ServedVersion == 1 })
	must(t, p.js.DeleteKeyValue(t.Context(), names.NatsBucketRulesets))
	p = newPublisher(t, server)
	p.put(ruleset(2, time.Minute, 4000, 6000))
	eventually(t, "version 2 is served", func() bool { return r.status().ServedVersion == 2 })
}
