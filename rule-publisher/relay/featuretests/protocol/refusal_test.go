package protocol

import (
	"strings"
	"testing"
	"time"

	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// TestForeignEnvoysAreRefused checks that the relay turns away an Envoy without a name, or of
// another cluster, with an error that names the key and what is allowed.
func TestForeignEnvoysAreRefused(t *testing.T) {
	r := harness.StartRelay(t, harness.Config(t, "nats://127.0.0.1:1"))
	foreign := harness.Node("gate", "a")
	foreign.Locality.Zone = "south"
	nameless := harness.Node("", "a")
	posing := harness.Node("gate", "a")
	posing.Id = "north/shop/a"
	for want, n := range map[string]func() harness.Client{
		`node.locality.zone: "south"; this relay serves cluster "north"`: func() harness.Client { return harness.NewDelta(t, harness.At(r), foreign) },
		`node.id: "north/shop/a"; must begin with "north/gate/"`:         func() harness.Client { return harness.NewSotw(t, harness.At(r), posing) },
		"node.cluster: empty": func() harness.Client { return harness.NewSotw(t, harness.At(r), nameless) },
	} {
		c := n()
		c.Subscribe(resources.ClusterType)
		select {
		case err := <-c.Failed():
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want %q", err, want)
			}
		case <-time.After(testkit.Patience):
			t.Error("not refused")
		}
	}
	if got := r.Status().Counters["streams_refused_node"]; got != 3 {
		t.Errorf("streams_refused_node %d", got)
	}
}

// TestFilesAreReloaded checks that an invalid new version of the files is refused and counted while
// the old one stays, and that a valid one is served.
func TestFilesAreReloaded(t *testing.T) {
	conf := harness.Config(t, "nats://127.0.0.1:1")
	r := harness.StartRelay(t, conf)
	c := harness.NewDelta(t, harness.At(r), harness.Node("gate", "a"))
	c.Subscribe(resources.ClusterType)
	c.Answer(harness.Next(t, c), "")
	testkit.Replace(t, conf.Endpoints, harness.Endpoints+"  - {service: shop, cluster: mars, addresses: []}\n")
	r.Counted("files_refused", 1)
	harness.Silent(t, c)
	testkit.Replace(t, conf.Endpoints, harness.Endpoints+"  - {service: depot, cluster: far, addresses: ['127.0.0.1:9203']}\n")
	if u := harness.Next(t, c); len(u.Resources) != 1 || u.TypeURL != resources.ClusterType {
		t.Errorf("%d resources of %s, want the new cluster", len(u.Resources), u.TypeURL)
	}
}
