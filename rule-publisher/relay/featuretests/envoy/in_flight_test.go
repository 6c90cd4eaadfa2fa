package envoy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/testkit"
)

// hanging starts a backend that answers requests for /items/hang only when `release` is called, and
// all others at once with its name.
func hanging(t *testing.T, name string) (port int, release func()) {
	t.Helper()
	released := make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	_, port = testkit.BackendOf(t, 0, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "hang") {
			<-released
		}
		io.WriteString(w, name) //nolint:errcheck // the asker is gone
	})
	return port, release
}

// callsInFlight waits for a heartbeat of the relay's process `relay` by which the one Envoy of gate
// reports this number of calls to shop in the cluster.
func callsInFlight(p *harness.Publisher, cluster string, want uint32, since time.Time) {
	p.T.Helper()
	p.Reports("spillway.heartbeats.north", func(data []byte) bool {
		beat := &spillwayv1.Heartbeat{}
		testkit.Must(p.T, proto.Unmarshal(data, beat))
		for _, source := range beat.GetCallsInFlight() {
			if beat.GetAt().AsTime().Before(since) || source.GetService() != "gate" || source.GetReportingEnvoys() != 1 {
				continue
			}
			calls := uint32(0)
			for _, d := range source.GetDestinations() {
				if d.GetService() == "shop" && d.GetCluster() == cluster {
					calls = d.GetCalls()
				}
			}
			if calls == want {
				return true
			}
		}
		return false
	})
}

// hang makes calls through Envoy that hang, and returns what waits for their ends.
func hang(e *testkit.Envoy, n int) *sync.WaitGroup {
	calls := &sync.WaitGroup{}
	for range n {
		calls.Go(func() {
			request, _ := http.NewRequest("GET", "http://"+e.Listener("outbound")+"/items/hang", nil)
			request.Host = "shop"
			if response, err := http.DefaultClient.Do(request); err == nil {
				response.Body.Close()
			}
		})
	}
	return calls
}

// TestCallsThatHangAreInHeartbeats checks that calls that never end are in the relay's heartbeats
// as long as they hang, at the cluster that has them, and not afterwards. No call has ended by then,
// so the rate of ended calls, and with it Little's law, is zero.
func TestCallsThatHangAreInHeartbeats(t *testing.T) {
	south, release := hanging(t, "south")
	server := harness.StartNATS(t, t.TempDir(), 0)
	p, conf, north := harness.Shop(t, server, 1)
	harness.WriteEndpoints(t, conf, north, south, 1)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	p.Put(harness.Ruleset(1, time.Minute, 0, 10000))
	testkit.Eventually(t, "version 1 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 1`) })
	calls := hang(e, 7)
	callsInFlight(p, "south", 7, time.Now())
	// They are reported again although none was sent since.
	callsInFlight(p, "south", 7, time.Now().Add(5*time.Second))
	if ended := e.Stat("cluster.shop|south.upstream_rq_completed"); ended > 0 {
		t.Errorf("%d calls have ended", ended)
	}
	release()
	calls.Wait()
	callsInFlight(p, "south", 0, time.Now())
	if r.Status().Counters["streams_refused_request"] != 0 || e.Stat("load_reporter.errors") > 0 {
		t.Error("reports were refused")
	}
}

// TestAnotherRelayLearnsOfCallsThatHang checks that an Envoy reports calls that hang to the next
// relay as well, although it sent them while it was connected to the one before.
func TestAnotherRelayLearnsOfCallsThatHang(t *testing.T) {
	south, _ := hanging(t, "south")
	p, conf, north := harness.Shop(t, harness.StartNATS(t, t.TempDir(), 0), 1)
	harness.WriteEndpoints(t, conf, north, south, 1)
	port := testkit.FreePort(t)
	conf.XDSListen = fmt.Sprintf("127.0.0.1:%d", port)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", port, north)
	p.Put(harness.Ruleset(1, time.Minute, 0, 10000))
	testkit.Eventually(t, "version 1 is in the config dump", func() bool { return e.RoutesSay(`"ruleset_version": 1`) })
	hang(e, 3)
	callsInFlight(p, "south", 3, time.Now())
	r.Stop()
	again := time.Now()
	harness.StartRelay(t, conf)
	callsInFlight(p, "south", 3, again)
	t.Logf("in a heartbeat %s after the start", time.Since(again))
}
