package envoy

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// regexLimit is Envoy's runtime key for the largest regular expression. Every outbound route table
// has one in its retry policies. So an Envoy with a limit of 1 refuses each table that it does not
// have yet.
const regexLimit = "re2.max_program_size.error_level"

// startFickleEnvoy starts an Envoy whose limit can be changed while it runs.
func startFickleEnvoy(t *testing.T, relayPort, appPort int) (e *testkit.Envoy, limit func(int)) {
	t.Helper()
	folder := t.TempDir()
	// Envoy reads the folder again when a link to it is renamed to this name.
	link := filepath.Join(folder, "runtime")
	limit = func(size int) {
		version := filepath.Join(folder, "limit-"+strconv.Itoa(size))
		testkit.Must(t, os.MkdirAll(filepath.Join(version, "envoy"), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(version, "envoy", regexLimit), []byte(strconv.Itoa(size)), 0o600))
		testkit.Must(t, os.Symlink(version, link+".new"))
		testkit.Must(t, os.Rename(link+".new", link))
	}
	limit(100)
	runtime := "\nlayered_runtime: {layers: [{name: disk, disk_layer: {symlink_root: " + link + ", subdirectory: envoy}}]}\n"
	return testkit.StartEnvoy(t, harness.Bootstrap(t, "DELTA_GRPC", relayPort, appPort)+runtime).Live(), limit
}

// forBoth returns a ruleset with the same rule for gate and till.
func forBoth(version uint64, weights ...uint32) *spillwayv1.Ruleset {
	set := harness.Ruleset(version, time.Minute, weights...)
	till := proto.CloneOf(set.Rules[0])
	till.SourceService = "till"
	set.Rules = append(set.Rules, till)
	return set
}

// TestRealEnvoyRefusesAVersion checks what follows when a real Envoy refuses a version. The relay
// reports Envoy's text. The service goes back to the previous version, including an Envoy of it
// that connects later, and then on to the next version. Another service has the refused version. No
// request fails because of the refusal.
func TestRealEnvoyRefusesAVersion(t *testing.T) {
	p, conf, north := harness.Shop(t, harness.StartNATS(t, t.TempDir(), 0), 1)
	r := harness.StartRelay(t, conf)
	e, limit := startFickleEnvoy(t, harness.PortOf(t, r.XDSAddr()), north)
	till := harness.NewDelta(t, harness.At(r), harness.Node("till", "a"))
	go acceptAll(till)
	inForce := func(service string, version uint64) func() bool {
		return func() bool { return r.Status().InForce[service] == version }
	}
	p.Put(forBoth(1, 4000, 6000))
	testkit.Eventually(t, "version 1 is in force", inForce("gate", 1))
	requests := harness.KeepAsking(t, e)
	limit(1)
	testkit.Eventually(t, "Envoy has the limit", func() bool { return strings.Contains(e.Get("/runtime"), `"final_value": "1"`) })

	p.Put(forBoth(2, 3000, 7000))
	p.Ack(func(a *spillwayv1.Acknowledgement) bool {
		return a.GetOutcome() == spillwayv1.Outcome_OUTCOME_NACK && a.GetEnvoy() == "north/gate/test" && a.GetRulesetVersion() == 2 &&
			a.GetTypeUrl() == resources.RouteType && strings.Contains(a.GetDetail(), "max program size")
	})
	testkit.Eventually(t, "version 2 is in force at the other service", inForce("till", 2))
	late := harness.NewDelta(t, harness.At(r), harness.Node("gate", "late"))
	if got := harness.Weights(t, harness.Boot(t, late), "shop", "shop GET /items/{id}"); got["shop|north"] != 4000 || got["shop|south"] != 6000 {
		t.Errorf("an Envoy that comes later gets %v, want the weights of version 1", got)
	}
	if !harness.WeightsAre(e, 4000, 6000) {
		t.Error("Envoy does not have version 1's weights")
	}

	limit(100)
	testkit.Eventually(t, "Envoy has the limit", func() bool { return strings.Contains(e.Get("/runtime"), `"final_value": "100"`) })
	p.Put(forBoth(3, 2000, 8000))
	testkit.Eventually(t, "version 3 is in the config dump", func() bool { return harness.WeightsAre(e, 2000, 8000) })
	if nacks := r.Counters().Get(count.AnswersRefused); nacks != 1 {
		t.Errorf("Envoy refused %d times, want once", nacks)
	}
	if asked, failed := requests(); failed != 0 || asked == 0 {
		t.Errorf("%d of %d requests failed", failed, asked)
	}
}

// acceptAll asks for everything and accepts it until the stream ends.
func acceptAll(c harness.Client) {
	c.Subscribe(resources.ClusterType)
	c.Subscribe(resources.RouteType, harness.RouteTables...)
	for {
		select {
		case u := <-c.Updates():
			c.Answer(u, "")
		case <-c.Failed(): //nolint:errcheck // it ends the loop, whatever it is
			return
		}
	}
}
