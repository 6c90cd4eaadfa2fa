package envoy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/testkit"
)

// residency returns a ruleset that denies items everywhere and parts in south, and still has a rule
// that routes parts to south.
func residency(version uint64, lasting time.Duration) *spillwayv1.Ruleset {
	out := harness.Ruleset(version, lasting, 0, 10000)
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
	testkit.Must(t, err)
	request.Host = "shop"
	response, err := http.DefaultClient.Do(request)
	testkit.Must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testkit.Must(t, err)
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
	northServer, north := testkit.StartBackend(t, "north", testkit.FreePort(t))
	_, south := testkit.StartBackend(t, "south", 0)
	_, far := testkit.StartBackend(t, "far", 0)
	server := harness.StartNATS(t, t.TempDir(), 0)
	p, conf := harness.NewPublisher(t, server), harness.Config(t, server.ClientURL())
	harness.WriteEndpoints(t, conf, north, south, far)
	r := harness.StartRelay(t, conf)
	e := harness.StartEnvoy(t, "DELTA_GRPC", harness.PortOf(t, r.XDSAddr()), north)
	p.Put(residency(1, 10*time.Second))
	testkit.Eventually(t, "the denials are in the config dump", func() bool { return e.RoutesSay("shop|north|!south") })
	refused(t, e)
	if got := e.Shares(20, "shop", "/parts/7"); got["north"] != 20 {
		t.Errorf("a class that is routed to a denied cluster went to %v", got)
	}
	if got := e.Shares(5, "shop", "/other/path"); got["north"] != 5 {
		t.Errorf("requests of no class went to %v", got)
	}
	testkit.Eventually(t, "the ruleset has expired", func() bool { return r.Status().ServedVersion == 0 })
	testkit.Eventually(t, "Envoy has the routes of after", func() bool { return e.RoutesSay(`"ruleset_version": 0`) })
	refused(t, e)
	testkit.Must(t, northServer.Close())
	if got := e.Shares(40, "shop", "/parts/7"); got["far"] != 40 {
		t.Errorf("with north dead a class that is denied south went to %v", got)
	}
	if got := e.Shares(20, "shop", "/other/path"); got["south"] != 20 {
		t.Errorf("with north dead requests of no class went to %v", got)
	}
	if nacks := r.Counters().Get(count.AnswersRefused); nacks != 0 {
		t.Errorf("Envoy refused %d answers", nacks)
	}
	r.Stop()
	server.Shutdown()
	again := harness.StartEnvoy(t, "GRPC", harness.PortOf(t, harness.StartRelay(t, conf).XDSAddr()), north)
	refused(t, again)
	if got := again.Shares(5, "shop", "/parts/7"); got["far"] != 5 {
		t.Errorf("after a restart a class that is denied south went to %v", got)
	}
}
