package table

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
)

var post = &spillwayv1.TrafficClass{Service: "shop", Method: "POST", PathTemplate: "/items"}

func deny(class *spillwayv1.TrafficClass, clusters ...string) *spillwayv1.Denial {
	return &spillwayv1.Denial{SourceCluster: "a", TrafficClass: class, Clusters: clusters}
}

// within returns rules of gate with the denials and, if there are any destinations, a rule for GET
// /items/{id}.
func within(t *testing.T, denials []*spillwayv1.Denial, destinations ...*spillwayv1.Destination) *Rules {
	t.Helper()
	ruleset := &spillwayv1.Ruleset{Version: 4, ExpiresAt: timestamppb.New(now.Add(time.Minute)),
		TrafficClasses: []*spillwayv1.TrafficClass{shop, post}, Denials: denials}
	if len(destinations) > 0 {
		ruleset.Rules = []*spillwayv1.Rule{{SourceCluster: "a", SourceService: "gate", TrafficClass: shop, Destinations: destinations}}
	}
	rules, err := ParseRules(ruleset, "a")
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func everywhere(t *testing.T) *Network {
	t.Helper()
	return network(t, at("shop", "a", "10.0.0.1:80"), at("shop", "b", "10.0.0.2:80"), at("shop", "c", "10.0.0.3:80"))
}

// ways returns the ways of the source service by class id; "" is the catch-all.
func ways(t *testing.T, source string, rules *Rules, at time.Time) map[string]Way {
	t.Helper()
	host := Build(source, everywhere(t), rules, at).Hosts[0]
	found := map[string]Way{"": host.Fallback}
	for _, r := range host.Routes {
		found[r.Class.ID()] = r.Way
	}
	return found
}

const getID, postID = "shop GET /items/{id}", "shop POST /items"

func wantWay(t *testing.T, got Way, without []string, weights ...Weighted) {
	t.Helper()
	if !slices.Equal(got.Weights, weights) || !slices.Equal(got.Without, without) {
		t.Errorf("got %v without %v, want %v without %v", got.Weights, got.Without, weights, without)
	}
}

// TestDeniedSharesAreLeftOut checks that a rule's share of a denied cluster goes to its other
// clusters. Other classes and the catch-all are not affected.
func TestDeniedSharesAreLeftOut(t *testing.T) {
	got := ways(t, "gate", within(t, []*spillwayv1.Denial{deny(shop, "b")}, to("a", 1000), to("b", 6000), to("c", 3000)), now)
	wantWay(t, got[getID], []string{"b"}, Weighted{"a", 2500}, Weighted{"c", 7500})
	wantWay(t, got[postID], nil, Weighted{"a", names.ValueWeightTotal})
	wantWay(t, got[""], nil, Weighted{"a", names.ValueWeightTotal})
}

// TestDeniedRulesFallToTheNearestAllowed checks that a class that is denied every cluster of its
// rule goes to the nearest allowed cluster.
func TestDeniedRulesFallToTheNearestAllowed(t *testing.T) {
	got := ways(t, "gate", within(t, []*spillwayv1.Denial{deny(shop, "a", "b")}, to("b", names.ValueWeightTotal)), now)
	wantWay(t, got[getID], []string{"a", "b"}, Weighted{"c", names.ValueWeightTotal})
}

// TestDeniedEverywhereIsClosed checks that a class that is denied in every cluster is closed: with
// a rule, without one, for services that no rule names, and after the rules have expired. The
// service's other class is served throughout.
func TestDeniedEverywhereIsClosed(t *testing.T) {
	denials := []*spillwayv1.Denial{deny(shop, "a", "b", "c", "island")}
	for _, rules := range []*Rules{within(t, denials), within(t, denials, to("b", names.ValueWeightTotal))} {
		for _, source := range []string{"gate", "other"} {
			for _, when := range []time.Time{now, now.Add(time.Hour)} {
				got := ways(t, source, rules, when)
				wantWay(t, got[getID], []string{"a", "b", "c"})
				wantWay(t, got[postID], nil, Weighted{"a", names.ValueWeightTotal})
			}
		}
	}
}

// TestDenialOfEveryClassBindsTheCatchAll checks that a denial of every class also applies to
// requests of no class.
func TestDenialOfEveryClassBindsTheCatchAll(t *testing.T) {
	got := ways(t, "other", within(t, []*spillwayv1.Denial{deny(nil, "a")}), now)
	wantWay(t, got[""], []string{"a"}, Weighted{"c", names.ValueWeightTotal})
	wantWay(t, ways(t, "other", within(t, []*spillwayv1.Denial{deny(nil, "a", "b", "c")}), now)[""], []string{"a", "b", "c"})
}

// TestDenialsAreOfRequestsNotOfNames checks that a denial applies to the same requests whatever the
// variables of its class are called.
func TestDenialsAreOfRequestsNotOfNames(t *testing.T) {
	other := &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: "/items/{item}"}
	got := ways(t, "gate", within(t, []*spillwayv1.Denial{deny(other, "a")}), now)
	wantWay(t, got[getID], []string{"a"}, Weighted{"c", names.ValueWeightTotal})
	wantWay(t, got["shop GET /items/{item}"], []string{"a"}, Weighted{"c", names.ValueWeightTotal})
}

// TestDenialsOfUnmatchableClassesBindTheService checks that a denied class that Envoy cannot
// distinguish from other requests is denied to all requests of the service.
func TestDenialsOfUnmatchableClassesBindTheService(t *testing.T) {
	odd := &spillwayv1.TrafficClass{Service: "shop", Method: "GET", PathTemplate: "/{a}{b}"}
	for class, got := range ways(t, "gate", within(t, []*spillwayv1.Denial{deny(odd, "a")}, to("a", names.ValueWeightTotal)), now) {
		if !slices.Equal(got.Without, []string{"a"}) || slices.ContainsFunc(got.Weights, func(w Weighted) bool { return w.Cluster == "a" }) {
			t.Errorf("%q: %+v", class, got)
		}
	}
}

// TestDenialErrors checks that denials that break the contract refuse the ruleset, with an error
// that names all of them.
func TestDenialErrors(t *testing.T) {
	elsewhere := deny(post, "b")
	elsewhere.SourceCluster = "b"
	_, err := ParseRules(&spillwayv1.Ruleset{Version: 1, ExpiresAt: timestamppb.New(now), Denials: []*spillwayv1.Denial{
		deny(shop, "b", "a"), deny(shop, "a"), deny(nil), elsewhere, deny(nil, "a", "a")}}, "a")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`denials[0].clusters: ["b" "a"] must be in order`, `denials[1].traffic_class: a second denial of "shop GET /items/{id}"`,
		"denials[2].clusters: none", `denials[3].source_cluster: "b"; this relay's cluster is "a"`, `denials[4].clusters: ["a" "a"]`,
		`denials[4].traffic_class: a second denial of ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s\nin: %v", want, err)
		}
	}
	_, err = ParseRules(&spillwayv1.Ruleset{Version: 1, ExpiresAt: timestamppb.New(now),
		Denials: slices.Repeat([]*spillwayv1.Denial{deny(shop, "a")}, names.ValueDenialsPerCluster+1)}, "a")
	if err == nil || !strings.Contains(err.Error(), "denials: 1001; must be at most 1000") {
		t.Errorf("too many: %v", err)
	}
}
