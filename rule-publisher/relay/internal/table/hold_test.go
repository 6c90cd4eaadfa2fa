package table

import (
	"encoding/json"
	"maps"
	"os"
	"testing"
	"testing/quick"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
)

// TestHoldIsAsTheContractsSay checks that the relay computes the same as
// contracts/python/spillway_contracts/hold.py, which the optimizer uses.
func TestHoldIsAsTheContractsSay(t *testing.T) {
	content, err := os.ReadFile("../../../../contracts/golden/hold.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Cluster, Service string
		Hold             int64 `json:"hold_ms"`
		Age              int64 `json:"age_ms"`
		Kept             uint32
		Weights          map[string]uint32
	}
	if err := json.Unmarshal(content, &cases); err != nil || len(cases) == 0 {
		t.Fatal(len(cases), err)
	}
	weights := []Weighted{{"east", 5001}, {"north", 3765}, {"west", 1234}}
	for _, c := range cases {
		kept := keptSteps(time.Duration(c.Age)*time.Millisecond, time.Duration(c.Hold)*time.Millisecond, c.Cluster, c.Service)
		if kept != c.Kept {
			t.Errorf("%+v: kept %d", c, kept)
		}
		if got := byCluster(decayed(weights, "west", kept)); !maps.Equal(got, c.Weights) {
			t.Errorf("%+v: weights %v", c, got)
		}
	}
}

func byCluster(weights []Weighted) map[string]uint32 {
	out := map[string]uint32{}
	for _, w := range weights {
		out[w.Cluster] = w.Weight
	}
	return out
}

// TestHeldWeightsOnlyGiveWayToTheNearest checks, for any weights, denials and times, that shares
// sum to the total, that the nearest cluster's share never falls as time passes, and that no denied
// cluster has a share.
func TestHeldWeightsOnlyGiveWayToTheNearest(t *testing.T) {
	n := network(t, at("shop", "a", "10.0.0.1:80"), at("shop", "b", "10.0.0.2:80"), at("shop", "c", "10.0.0.3:80"))
	check := func(first, second uint16, earlier, later uint16, deny uint8) bool {
		x := uint32(first) % (names.ValueWeightTotal + 1)
		y := uint32(second) % (names.ValueWeightTotal + 1 - x)
		r := rules(t, to("a", x), to("b", y), to("c", names.ValueWeightTotal-x-y))
		r.Hold = time.Hour
		denied := []string{"a", "b", "c"}[deny%3]
		if deny > 127 {
			denied = "nowhere"
		}
		r.denials.everything = []string{denied}
		nearest := uint32(0)
		for _, after := range []uint16{min(earlier, later), max(earlier, later)} {
			instant := r.ExpiresAt.Add(time.Duration(after) * time.Second / 10) // up to 1.8 hours
			w := byCluster(Build("gate", n, r, instant).Hosts[0].Routes[0].Weights)
			sum := uint32(0)
			for _, share := range w {
				sum += share
			}
			local := "a"
			if denied == "a" {
				local = "c" // 10 ms away; b is 50 ms away
			}
			if sum != names.ValueWeightTotal || w[denied] != 0 || w[local] < nearest {
				t.Logf("%v, denied %s, nearest %s had %d", w, denied, local, nearest)
				return false
			}
			nearest = w[local]
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// TestExpiredRulesAreHeldAndThenReleased checks that nothing changes at expiry, and that in the end
// everything is local-first and the version is gone.
func TestExpiredRulesAreHeldAndThenReleased(t *testing.T) {
	n := network(t, at("shop", "a", "10.0.0.1:80"), at("shop", "b", "10.0.0.2:80"))
	r, err := ParseRules(&spillwayv1.Ruleset{Version: 4, ExpiresAt: timestamppb.New(now), TrafficClasses: []*spillwayv1.TrafficClass{shop},
		Rules: []*spillwayv1.Rule{{SourceCluster: "a", SourceService: "gate", TrafficClass: shop, Destinations: []*spillwayv1.Destination{to("a", 2000), to("b", 8000)}}}}, "a")
	if err != nil {
		t.Fatal(err)
	}
	r.Hold = 6 * time.Hour
	for _, c := range []struct {
		after   time.Duration
		b       uint32
		version uint64
	}{{time.Minute, 8000, 4}, {89 * time.Minute, 8000, 4}, {6 * time.Hour, 0, 0}} {
		got := Build("gate", n, r, now.Add(c.after))
		if b := byCluster(got.Hosts[0].Routes[0].Weights)["b"]; b != c.b || got.Version != c.version {
			t.Errorf("after %s: b has %d, version %d; want %d, %d", c.after, b, got.Version, c.b, c.version)
		}
	}
}
