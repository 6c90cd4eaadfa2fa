package control

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/serve/resources"
)

// FuzzRuleset checks, for any bytes in the cluster's key, that the loop goes on and that what it
// serves is consistent. Envoy's own validation rules (protoc-gen-validate) must accept every
// resource.
func FuzzRuleset(f *testing.F) {
	good := rulesetOf(1, time.Hour, map[string]uint32{"a": 2500})
	for _, change := range []func(*spillwayv1.Ruleset){
		func(*spillwayv1.Ruleset) {},
		func(r *spillwayv1.Ruleset) { r.Rules[0].Destinations[0].Weight = 4_294_967_295 },
		func(r *spillwayv1.Ruleset) { r.Rules[0].TrafficClass.PathTemplate = "/{x}/v{y}.json/%zz" },
		func(r *spillwayv1.Ruleset) { r.Rules[0].TrafficClass.Service = "b\n" },
		func(r *spillwayv1.Ruleset) { r.Rules[0].SourceService = "\x00" },
		func(r *spillwayv1.Ruleset) { r.Rules[0].Destinations[0].Cluster = "" },
		func(r *spillwayv1.Ruleset) { r.InputWindow.Id, r.Version = "\x7f\r\n", 1<<53 },
		func(r *spillwayv1.Ruleset) { r.ExpiresAt = nil },
		func(r *spillwayv1.Ruleset) {
			r.Denials = []*spillwayv1.Denial{{SourceCluster: "north", Clusters: []string{"south"}}, {SourceCluster: "north",
				TrafficClass: r.Rules[0].TrafficClass, Clusters: []string{"%\n", "north", "south"}}}
		},
		func(r *spillwayv1.Ruleset) {
			r.Denials = []*spillwayv1.Denial{{SourceCluster: "north", TrafficClass: &spillwayv1.TrafficClass{Service: "b"}, Clusters: []string{"north"}}}
		},
	} {
		changed := proto.Clone(good).(*spillwayv1.Ruleset)
		change(changed)
		value, err := proto.Marshal(changed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Add([]byte{0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, value []byte) { inBubble(t, func(t *testing.T) { takeAny(t, value) }) })
}

func takeAny(t *testing.T, value []byte) {
	b := newBed(t, mesh(t, "north", "south"))
	b.connected("a", "a/1")
	b.connected("b", "b/1")
	b.takeRuleset(signed(value))
	b.settle()
	for name, s := range b.services {
		if err := s.served.Consistent(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, typeURL := range []string{resources.ClusterType, resources.EndpointType, resources.RouteType} {
			validate(t, s.served[typeURL])
		}
	}
}

func validate(t *testing.T, set resources.Set) {
	t.Helper()
	for _, packed := range set.Packed() {
		message, err := packed.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		if err := message.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
			t.Errorf("%v in %v", err, message)
		}
	}
}
