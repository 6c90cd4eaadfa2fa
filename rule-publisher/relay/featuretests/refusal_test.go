package featuretests

import (
	"strings"
	"testing"
	"time"

	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// TestForeignEnvoysAreRefused checks that the relay turns away an Envoy without a name, or of
// another cluster, with an error that names the key and what is allowed.
func TestForeignEnvoysAreRefused(t *testing.T) {
	r := startRelay(t, testConfig(t, "nats://127.0.0.1:1"))
	foreign := node("gate", "a")
	foreign.Locality.Zone = "south"
	nameless := node("", "a")
	posing := node("gate", "a")
	posing.Id = "north/shop/a"
	for want, n := range map[string]func() client{
		`node.locality.zone: "south"; this relay serves cluster "north"`: func() client { return newDelta(t, at(r), foreign) },
		`node.id: "north/shop/a"; must begin with "north/gate/"`:         func() client { return newSotw(t, at(r), posing) },
		"node.cluster: empty": func() client { return newSotw(t, at(r), nameless) },
	} {
		c := n()
		c.subscribe(resources.ClusterType)
		select {
		case err := <-c.failed():
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want %q", err, want)
			}
		case <-time.After(patience):
			t.Error("not refused")
		}
	}
	if got := r.status().Counters["streams_refused_node"]; got != 3 {
		t.Errorf("streams_refused_node %d", got)
	}
}

// TestFilesAreReloaded checks that an invalid new version of the files is refused and counted while
// the old one stays, and that a valid one is served.
func TestFilesAreReloaded(t *testing.T) {
	conf := testConfig(t, "nats://127.0.0.1:1")
	r := startRelay(t, conf)
	c := newDelta(t, at(r), node("gate", "a"))
	c.subscribe(resources.ClusterType)
	c.answer(next(t, c), "")
	testkit.Replace(t, conf.Endpoints, testEndpoints+"  - {service: shop, cluster: mars, addresses: []}\n")
	r.counted("files_refused", 1)
	silent(t, c)
	testkit.Replace(t, conf.Endpoints, testEndpoints+"  - {service: depot, cluster: far, addresses: ['127.0.0.1:9203']}\n")
	if u := next(t, c); len(u.resources) != 1 || u.typeURL != resources.ClusterType {
		t.Errorf("%d resources of %s, want the new cluster", len(u.resources), u.typeURL)
	}
}
