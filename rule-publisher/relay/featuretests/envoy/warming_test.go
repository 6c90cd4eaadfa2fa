package envoy

import (
	"os"
	"strings"
	"testing"
	"time"

	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/testkit"
)

// timeouts returns the clusters whose endpoints Envoy gave up waiting for, so that it used the
// clusters without them.
func timeouts(e *testkit.Envoy) (out []string) {
	for line := range strings.Lines(e.Get("/stats?filter=init_fetch_timeout")) {
		if !strings.HasSuffix(strings.TrimSpace(line), ": 0") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// writeTopology writes the topology with another round-trip time to south.
func writeTopology(t *testing.T, conf relay.Config, rtt string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(conf.Topology+".new", []byte(strings.Replace(harness.Topology, "rtt_ms: 20", rtt, 1)), 0o600))
	testkit.Must(t, os.Rename(conf.Topology+".new", conf.Topology))
}

// inUse waits until Envoy uses a cluster with this connection timeout and waits for no other
// cluster.
func inUse(t *testing.T, e *testkit.Envoy, timeout string) {
	t.Helper()
	testkit.Eventually(t, "clusters with a connect_timeout of "+timeout+" are in use", func() bool {
		active := e.Get("/config_dump?resource=dynamic_active_clusters")
		return strings.Contains(active, `"connect_timeout": "`+timeout+`"`) && e.Stat("cluster_manager.warming_clusters") == 0
	})
}

// TestRealEnvoyUsesAChangedClusterAtOnce checks a cluster whose round-trip time changed, while its
// endpoints and the order of clusters did not. Envoy waits up to 15 s for the endpoints of a
// changed cluster. The relay sends them again, so Envoy uses the cluster at once.
func TestRealEnvoyUsesAChangedClusterAtOnce(t *testing.T) {
	for _, variant := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(variant, func(t *testing.T) {
			p, conf, north := harness.Shop(t, harness.StartNATS(t, t.TempDir(), 0), 1)
			conf.XDSListen = testkit.FreeAddress(t)
			r := harness.StartRelay(t, conf)
			e := harness.StartEnvoy(t, variant, harness.PortOf(t, r.XDSAddr()), north)
			p.Put(harness.Ruleset(1, time.Minute, 0, 10000))
			testkit.Eventually(t, "version 1 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 1`) })

			writeTopology(t, conf, "rtt_ms: 60")
			inUse(t, e, "0.620s")
			// Another relay takes over, for which the cluster is still farther away.
			r.Stop()
			writeTopology(t, conf, "rtt_ms: 70")
			r = harness.StartRelay(t, conf)
			harness.Boot(t, harness.NewDelta(t, harness.At(r), harness.Node("gate", "other"))) // so that the service is known before Envoy connects
			inUse(t, e, "0.640s")
			if late := timeouts(e); len(late) != 0 {
				t.Errorf("Envoy waited for endpoints in vain: %v", late)
			}
			if got := e.Shares(20, "shop", "/items/7"); got["south"] != 20 {
				t.Errorf("calls went to %v", got)
			}
			if nacks := r.Counters().Get(count.AnswersRefused); nacks != 0 {
				t.Errorf("Envoy refused %d answers", nacks)
			}
		})
	}
}
