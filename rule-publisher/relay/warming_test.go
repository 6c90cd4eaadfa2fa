package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/testkit"
)

// timeouts are the clusters that an Envoy gave up waiting for the endpoints of, and used as they were.
func timeouts(e *testkit.Envoy) (out []string) {
	for line := range strings.Lines(e.Get("/stats?filter=init_fetch_timeout")) {
		if !strings.HasSuffix(strings.TrimSpace(line), ": 0") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// A cluster that changes (its round-trip time did, the order of clusters did not) and whose endpoints do not is in use at once: Envoy,
// which waits for the endpoints of a changed cluster for 15 s, is told them again.
func TestRealEnvoyUsesAChangedClusterAtOnce(t *testing.T) {
	for _, variant := range []string{"DELTA_GRPC", "GRPC"} {
		t.Run(variant, func(t *testing.T) {
			_, north := backend(t, "north", 0)
			_, south := backend(t, "south", 0)
			server := startNATS(t, t.TempDir(), 0)
			p := newPublisher(t, server)
			conf := testConfig(t, server.ClientURL())
			writeEndpoints(t, conf, north, south, 1)
			r := startRelay(t, conf)
			e := startEnvoy(t, variant, portOf(t, r.listener.Addr().String()), north)
			p.put(ruleset(1, time.Minute, 0, 10000))
			eventually(t, "version 1 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 1`) })

			farther := strings.Replace(testTopology, "rtt_ms: 20", "rtt_ms: 60", 1)
			must(t, os.WriteFile(conf.Topology+".new", []byte(farther), 0o600))
			must(t, os.Rename(conf.Topology+".new", conf.Topology))
			eventually(t, "the changed clusters are in use", func() bool {
				active := e.Get("/config_dump?resource=dynamic_active_clusters")
				return strings.Contains(active, `"connect_timeout": "0.620s"`) && e.Stat("cluster_manager.warming_clusters") == 0
			})
			if late := timeouts(e); len(late) != 0 {
				t.Errorf("Envoy waited for endpoints in vain: %v", late)
			}
			if got := e.Shares(20, "shop", "/items/7"); got["south"] != 20 {
				t.Errorf("calls went to %v", got)
			}
			if nacks := r.counters.Get(count.AnswersRefused); nacks != 0 {
				t.Errorf("Envoy refused %d answers", nacks)
			}
		})
	}
}
