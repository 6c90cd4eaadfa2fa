package harness

import (
	_ "embed" // the bootstrap of an Envoy
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/testkit"
)

// StartEnvoy starts an Envoy with the ADS variant, DELTA_GRPC or GRPC, and returns when it serves.
func StartEnvoy(t *testing.T, variant string, relayPort, appPort int) *testkit.Envoy {
	t.Helper()
	return StartEnvoyUnready(t, variant, relayPort, appPort).Live()
}

// StartEnvoyUnready starts an Envoy and returns when its admin page answers.
func StartEnvoyUnready(t *testing.T, variant string, relayPort, appPort int) *testkit.Envoy {
	t.Helper()
	return testkit.StartEnvoy(t, Bootstrap(t, variant, relayPort, appPort))
}

//go:embed bootstrap.yaml
var bootstrap string

// Bootstrap returns the configuration of an Envoy of service gate in north.
func Bootstrap(t *testing.T, variant string, relayPort, appPort int) string {
	t.Helper()
	folder := t.TempDir()
	pair := Authority.Envoy("north", "gate")
	for name, content := range map[string][]byte{"envoy.crt": pair.Cert, "envoy.key": pair.Key, "ca.crt": Authority.PEM} {
		testkit.Must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	return strings.NewReplacer("RELAY_PORT", strconv.Itoa(relayPort), "APP_PORT", strconv.Itoa(appPort),
		"API_TYPE", variant, "FOLDER", folder).Replace(bootstrap)
}

// Shop starts one backend of shop in north and one in south, which answer with these names. The
// endpoint in far is at the given port.
func Shop(t *testing.T, server *natsserver.Server, far int) (p *Publisher, conf relay.Config, north int) {
	t.Helper()
	_, north = testkit.StartBackend(t, "north", 0)
	_, south := testkit.StartBackend(t, "south", 0)
	conf = Config(t, server.ClientURL())
	WriteEndpoints(t, conf, north, south, far)
	return NewPublisher(t, server), conf, north
}

// WriteEndpoints writes the endpoints of shop in three clusters.
func WriteEndpoints(t *testing.T, conf relay.Config, north, south, far int) {
	t.Helper()
	testkit.Must(t, os.WriteFile(conf.Endpoints, fmt.Appendf(nil, `
cluster: north
services:
  - {service: shop, cluster: north, addresses: ["127.0.0.1:%d"]}
  - {service: shop, cluster: south, addresses: ["127.0.0.1:%d"]}
  - {service: shop, cluster: far, addresses: ["127.0.0.1:%d"]}
`, north, south, far), 0o600))
}

// WeightsAre reports whether Envoy itself has these weights for the class.
func WeightsAre(e *testkit.Envoy, north, south int) bool {
	dump := strings.Join(strings.Fields(e.Get("/config_dump?resource=dynamic_route_configs")), "")
	return strings.Contains(dump, fmt.Sprintf(`{"name":"shop|north","weight":%d},{"name":"shop|south","weight":%d}`, north, south))
}

// KeepAsking sends requests until `stop` is called, which returns their numbers.
func KeepAsking(t *testing.T, e *testkit.Envoy) (stop func() (asked, failed int64)) {
	var done atomic.Bool
	var asked, failed atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !done.Load() {
			request, _ := http.NewRequest("GET", "http://"+e.Listener("outbound")+"/items/7", nil)
			request.Host = "shop"
			response, err := http.DefaultClient.Do(request)
			asked.Add(1)
			if err != nil || response.StatusCode != 200 {
				failed.Add(1)
			}
			if err == nil {
				response.Body.Close()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	stop = func() (int64, int64) { done.Store(true); <-ended; return asked.Load(), failed.Load() }
	t.Cleanup(func() { stop() })
	return stop
}
