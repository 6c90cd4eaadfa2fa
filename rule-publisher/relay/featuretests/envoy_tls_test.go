package featuretests

import (
	"path/filepath"
	"testing"
	"time"

	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/testkit"
)

// TestRealEnvoyWithTheWrongIdentityKeepsServing checks that a real Envoy whose certificate does not
// match its node is refused each time it connects, and continues with what it has. As soon as a
// relay accepts its certificate, it follows rulesets again. It also does so while the relay's own
// certificate changes under the open stream.
func TestRealEnvoyWithTheWrongIdentityKeepsServing(t *testing.T) {
	p, conf, north := shop(t, startNATS(t, t.TempDir(), 0), 1)
	conf.XDSListen = testkit.FreeAddress(t)
	good := startRelay(t, conf)
	e := startEnvoy(t, "DELTA_GRPC", portOf(t, conf.XDSListen), north)
	p.put(ruleset(1, time.Minute, 0, 10000))
	eventually(t, "version 1 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 1`) })
	good.stop()

	strict := conf
	strict.Identity = identity.Pattern("spiffe://another.mesh/{cluster}/{service}")
	refusing := startRelay(t, strict)
	p.put(ruleset(2, time.Minute, 10000))
	eventually(t, "Envoy is refused repeatedly", func() bool { return refusing.status().Counters["streams_refused_identity"] >= 2 })
	if got := e.Shares(50, "shop", "/items/7"); got["south"] != 50 || e.RoutesSay(`"ruleset_version": 2`) {
		t.Errorf("while refused, calls went to %v, want version 1's south", got)
	}
	refusing.stop()

	again := startRelay(t, conf)
	eventually(t, "version 2 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 2`) })
	_, err := authority.WriteServer(filepath.Dir(conf.XDS.Cert), authority.Relay("north"))
	must(t, err)
	again.counted("tls_files_taken", 1)
	p.put(ruleset(3, time.Minute, 0, 10000))
	eventually(t, "version 3 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 3`) })
	if opened := again.status().Counters["streams_opened"]; opened != 1 {
		t.Errorf("Envoy opened %d streams to the relay, want 1: rotation drops none", opened)
	}
}

// TestRealEnvoyRefusesAnotherClustersRelay checks that a real Envoy does not use a relay that shows
// another cluster's certificate. Such an Envoy answers no call, rather than giving a wrong answer.
func TestRealEnvoyRefusesAnotherClustersRelay(t *testing.T) {
	conf := testConfig(t, "nats://127.0.0.1:1")
	_, err := authority.WriteServer(filepath.Dir(conf.XDS.Cert), authority.Relay("south"))
	must(t, err)
	r := startRelay(t, conf)
	e := startEnvoyUnready(t, "GRPC", portOf(t, r.XDSAddr()), 1)
	eventually(t, "Envoy breaks handshakes off", func() bool { return e.Stat("cluster.spillway-xds.ssl.fail_verify_san") >= 2 })
	if s := r.status(); len(s.Envoys) != 0 {
		t.Errorf("status %+v", s)
	}
}
