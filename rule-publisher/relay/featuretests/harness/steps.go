package harness

import (
	"maps"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// ItemClass is the id of the class of the tests' rulesets.
const ItemClass = "shop GET /items/{id}"

// RouteTables has the names of both route tables of an Envoy.
var RouteTables = []string{names.XdsInboundRoute, names.XdsOutboundRoute}

// EachVariantOf runs the test with both protocol variants.
func EachVariantOf(t *testing.T, test func(t *testing.T, open func(*testing.T, *Dialer, *core.Node) Client)) {
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, variants[name])
		})
	}
}

// EachVariant runs a test in which all Envoys are of service gate and have the matching
// certificate.
func EachVariant(t *testing.T, test func(t *testing.T, open func(*testing.T, *Relay, string) Client)) {
	EachVariantOf(t, func(t *testing.T, open func(*testing.T, *Dialer, *core.Node) Client) {
		test(t, func(t *testing.T, r *Relay, pod string) Client { return open(t, At(r), Node("gate", pod)) })
	})
}

// Boot subscribes to routes and accepts the first answer.
func Boot(t *testing.T, c Client) Update {
	t.Helper()
	c.Subscribe(resources.RouteType, RouteTables...)
	u := Next(t, c)
	c.Answer(u, "")
	return u
}

// Expect checks that the next response has these weights, and accepts it.
func Expect(t *testing.T, c Client, want map[string]uint32) Update {
	t.Helper()
	u := Next(t, c)
	if got := Weights(t, u, "shop", ItemClass); !maps.Equal(got, want) {
		t.Fatalf("version %s: weights %v, want %v", u.Version, got, want)
	}
	c.Answer(u, "")
	return u
}

// Next returns the next response, of any type.
func Next(t *testing.T, c Client) Update {
	t.Helper()
	select {
	case u := <-c.Updates():
		return u
	case err := <-c.Failed():
		t.Fatal(err)
	case <-time.After(testkit.Patience):
		t.Fatal("no response")
	}
	return Update{}
}

// Silent fails when a response arrives within a short time.
func Silent(t *testing.T, c Client) {
	t.Helper()
	select {
	case u := <-c.Updates():
		t.Fatalf("a response that nobody needs: %s %s", u.TypeURL, u.Version)
	case <-time.After(300 * time.Millisecond):
	}
}

// Weights returns the weights of the class shop GET /items/{id}, or of the catch-all, in an
// outbound update; nil when absent.
func Weights(t *testing.T, u Update, host, routeName string) map[string]uint32 {
	t.Helper()
	for _, packed := range u.Resources {
		config := &route.RouteConfiguration{}
		testkit.Must(t, packed.UnmarshalTo(config))
		if config.GetName() != names.XdsOutboundRoute {
			continue
		}
		for _, h := range config.GetVirtualHosts() {
			for _, r := range h.GetRoutes() {
				if h.GetName() == host && r.GetName() == routeName {
					found := map[string]uint32{}
					for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
						found[w.GetName()] = w.GetWeight().GetValue()
					}
					return found
				}
			}
		}
	}
	return nil
}
