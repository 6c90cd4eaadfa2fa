package table

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"spillway.dev/contracts/spillwayv1"
)

func declared(services ...*spillwayv1.Service) *spillwayv1.Topology {
	made := topology()
	made.Services = services
	return made
}

// TestHandlingComesFromTheTopology checks that what the topology says of a service reaches its
// callers' tables. A service that the topology does not declare has no limits.
func TestHandlingComesFromTheTopology(t *testing.T) {
	shop := &spillwayv1.Service{Name: "shop", Replay: "idempotent", Check: "http2", Timeouts: &spillwayv1.Timeouts{
		Request: durationpb.New(30 * time.Second), Idle: durationpb.New(time.Minute), PerTry: durationpb.New(2 * time.Second)}}
	n, err := NewNetwork("a", declared(shop), endpoints(at("shop", "a", "10.0.0.1:80"), at("stock", "a", "10.0.0.2:80")), nil)
	if err != nil {
		t.Fatal(err)
	}
	hosts := Build("gate", n, nil, now).Hosts
	if want := (Handling{30 * time.Second, time.Minute, 2 * time.Second, ReplayIdempotent, CheckHTTP2}); hosts[0].Handling != want {
		t.Errorf("shop: %+v, want %+v", hosts[0].Handling, want)
	}
	if want := (Handling{Replay: ReplayNever, Check: CheckHTTP1}); hosts[1].Handling != want {
		t.Errorf("stock: %+v, want %+v", hosts[1].Handling, want)
	}
}

func TestBadHandlingIsNamed(t *testing.T) {
	_, err := NewNetwork("a", declared(
		&spillwayv1.Service{Name: "x", Replay: "always", Check: "tcp"},
		&spillwayv1.Service{Name: "y", Timeouts: &spillwayv1.Timeouts{Idle: durationpb.New(-time.Second), Request: durationpb.New(48 * time.Hour)}},
		&spillwayv1.Service{Name: "z", Timeouts: &spillwayv1.Timeouts{Request: durationpb.New(time.Second), PerTry: durationpb.New(2 * time.Second)}},
	), endpoints(at("shop", "a", "10.0.0.1:80")), nil)
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{
		`topology services[0].replay: "always" must be absent or one of never, idempotent, any`,
		`topology services[0].check: "tcp" must be absent or one of http1, http2, off`,
		"topology services[1].timeouts.request: 48h0m0s must be 0.001s..86400s, or 0s for none",
		"topology services[1].timeouts.idle: -1s must be",
		"topology services[2].timeouts.per_try: 2s must be at most request, 1s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin %v", want, err)
		}
	}
}
