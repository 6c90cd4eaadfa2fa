package featuretests

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/testkit"
)

// residency returns a ruleset that denies items everywhere and parts in south, and still has a rule
// that routes parts to south.
func residency(version uint64, lasting time.Duration) *spillwayv1.Ruleset {
	out := ruleset(version, lasting, 0, 10000)
	items := out.GetRules()[0].GetTrafficClass()
	parts := &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: "/parts/{id}"}
	out.Rules[0].TrafficClass, out.TrafficClasses = parts, append(out.TrafficClasses, parts)
	out.Denials = []*spillwayv1.Denial{
		{SourceCluster: "north", TrafficClass: items, Clusters: []string{"far", "north", "south"}},
		{SourceCluster: "north", TrafficClass: parts, Clusters: []string{"south"}},
	}
	return out
}

// refused checks that Envoy itself answers requests for items, and names the reason.
func refused(t *testing.T, e *testkit.Envoy) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+e.Listener("outbound")+"/items/7", nil)
	must(t, err)
	request.Host = "shop"
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get(names.HttpHeaderDenied) != "far, north, south" ||
		!strings.Contains(string(body), "shop GET /items/{id}: denied in every cluster that has shop: far, north, south") {
		t.Errorf("a denied class got %s, %q, %q", response.Status, response.Header, body)
	}
}

// TestRealEnvoyKeepsDenials checks denials with a real Envoy. A class that denials leave no
// destination gets 503. Another class of the same service is served, but not where it is denied:
// neither by its rule nor by failover. This stays so when the ruleset has expired, and after a
// restart without NATS.
func TestRealEnvoyKeepsDenials(t *testing.T) {
	northServer, north := backend(t, "north", testkit.FreePort(t))
	_, south := backend(t, "south", 0)
	_, far := backend(t, "far", 0)
	server := startNATS(t, t.TempDir(), 0)
	p, conf := newPublisher(t, server), testConfig(t, server.ClientURL())
	writeEndpoints(t, conf, north, south, far)
	r := startRelay(t, conf)
	e := startEnvoy(t, "DELTA_GRPC", portOf(t, r.XDSAddr()), north)
	p.put(residency(1, 10*time.Second))
	eventually(t, "the denials are in the config dump", func() bool { return e.RoutesSay("shop|north|!south") })
	refused(t, e)
	if got := e.Shares(20, "shop", "/parts/7"); got["north"] != 20 {
		t.Errorf("a class that is routed to a denied cluster went to %v", got)
	}
	if got := e.Shares(5, "shop", "/other/path"); got["north"] != 5 {
		t.Errorf("requests of no class went to %v", got)
	}
	eventually(t, "the ruleset has expired", func() bool { return r.status().ServedVersion == 0 })
	eventually(t, "Envoy has the routes of after", func() bool { return e.RoutesSay(`"ruleset_version": 0`) })
	refused(t, e)
	must(t, northServer.Close())
	if got := e.Shares(40, "shop", "/parts/7"); got["far"] != 40 {
		t.Errorf("with north dead a class that is denied south went to %v", got)
	}
	if got := e.Shares(20, "shop", "/other/path"); got["south"] != 20 {
		t.Errorf("with north dead requests of no class went to %v", got)
	}
	if nacks := r.Counters().Get(count.AnswersRefused); nacks != 0 {
		t.Errorf("Envoy refused %d answers", nacks)
	}
	r.stop()
	server.Shutdown()
	again := startEnvoy(t, "GRPC", portOf(t, startRelay(t, conf).XDSAddr()), north)
	refused(t, again)
	if got := again.Shares(5, "shop", "/parts/7"); got["far"] != 5 {
		t.Errorf("after a restart a class that is denied south went to %v", got)
	}
}
