package access

import (
	"path/filepath"
	"testing"
	"time"

	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/testkit"
)

// TestRealEnvoyWithTheWrongIdentityKeepsServing checks that a real Envoy whose certificate does not
// match its node is refused each time it connects, and continues with what it has. As soon as a
// relay accepts its certificate, it follows rulesets again. It also does so while the relay's own
// certificate changes under the open stream.
func TestRealEnvoyWithTheWrongIdentityKeepsServing(t *testing.T) {
	p, conf, north := harness.Shop(t, harness.StartNATS(t, t.TempDir(), 0), 1)
	conf.XDSListen = testkit.FreeAddress(t)
	good := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, conf.XDSListen), north)
	p.Put(harness.Ruleset(1, time.Minute, 0, 10000))
	testkit.Eventually(t, "version 1 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 1`) })
	good.Stop()

	strict := conf
	strict.Identity = identity.Pattern("spiffe://another.mesh/{cluster}/{service}")
	refusing := harness.StartRelay(t, strict)
	p.Put(harness.Ruleset(2, time.Minute, 10000))
	testkit.Eventually(t, "Envoy is refused repeatedly", func() bool { return refusing.Status().Counters["streams_refused_identity"] >= 2 })
	if got := e.Shares(50, "shop", "/items/7"); got["south"] != 50 || e.RoutesSay(`"ruleset_version": 2`) {
		t.Errorf("while refused, calls went to %v, want version 1's south", got)
	}
	refusing.Stop()

	again := harness.StartRelay(t, conf)
	testkit.Eventually(t, "version 2 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 2`) })
	_, err := harness.Authority.WriteServer(filepath.Dir(conf.XDS.Cert), harness.Authority.Relay("north"))
	testkit.Must(t, err)
	again.Counted("tls_files_taken", 1)
	p.Put(harness.Ruleset(3, time.Minute, 0, 10000))
	testkit.Eventually(t, "version 3 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 3`) })
	if opened := again.Status().Counters["streams_opened"]; opened != 1 {
		t.Errorf("Envoy opened %d streams to the relay, want 1: rotation drops none", opened)
	}
}

// TestRealEnvoyRefusesAnotherClustersRelay checks that a real Envoy does not use a relay that shows
// another cluster's certificate. Such an Envoy answers no call, rather than giving a wrong answer.
func TestRealEnvoyRefusesAnotherClustersRelay(t *testing.T) {
	conf := harness.Config(t, "nats://127.0.0.1:1")
	_, err := harness.Authority.WriteServer(filepath.Dir(conf.XDS.Cert), harness.Authority.Relay("south"))
	testkit.Must(t, err)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoyUnready(t, "GRPC", harness.PortOf(t, r.XDSAddr()), 1)
	testkit.Eventually(t, "Envoy breaks handshakes off", func() bool { return e.Stat("cluster.spillway-xds.ssl.fail_verify_san") >= 2 })
	if s := r.Status(); len(s.Envoys) != 0 {
		t.Errorf("status %+v", s)
	}
}
