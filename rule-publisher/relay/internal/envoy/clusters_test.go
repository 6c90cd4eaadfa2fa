package envoy

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"spillway.dev/relay/internal/table"
)

// TestHandshakeTime checks that the time for a connection grows with the round trip and is enough
// for the farthest cluster that it may fail over to. It never uses up the time of the other
// attempts.
func TestHandshakeTime(t *testing.T) {
	for _, test := range []struct{ near, far, wantNear, wantFar time.Duration }{
		{0, 80 * time.Millisecond, 500 * time.Millisecond, 660 * time.Millisecond},
		{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second},
		{0, 600 * time.Millisecond, 1200 * time.Millisecond, 1700 * time.Millisecond},
		{0, time.Minute, 5 * time.Second, 5 * time.Second},
	} {
		tiers := []table.Tier{{RTT: test.near}, {RTT: test.far}}
		if near, far := handshakeTime(tiers, tiers[0]), handshakeTime(tiers, tiers[1]); near != test.wantNear || far != test.wantFar {
			t.Errorf("round trips %s and %s: %s and %s, want %s and %s", test.near, test.far, near, far, test.wantNear, test.wantFar)
		}
	}
}

// TestChecksAreFewAndStay checks that at most 16 endpoints are checked for one service in one other
// cluster. An endpoint that comes or goes changes that for at most one other, because Envoy treats
// a changed endpoint as a new host, which gets no request until its first check.
func TestChecksAreFewAndStay(t *testing.T) {
	tier := func(endpoints int) (tier table.Tier) {
		for i := range endpoints {
			address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
			tier.Endpoints = append(tier.Endpoints, table.Endpoint{Address: address, Zone: string(rune('a' + 3*i/endpoints))})
		}
		return tier
	}
	checked := func(tier table.Tier) map[string]bool {
		found := map[string]bool{}
		for _, locality := range newAssignment("shop|south", []table.Tier{tier}, true).GetEndpoints() {
			for _, e := range locality.GetLbEndpoints() {
				if !e.GetEndpoint().GetHealthCheckConfig().GetDisableActiveHealthCheck() {
					found[e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()] = true
				}
			}
		}
		return found
	}
	for _, endpoints := range []int{1, 2, checkedMost, checkedMost + 1, checkedMost + 2, 50, 300} {
		all := tier(endpoints)
		before := checked(all)
		if want := min(endpoints, checkedMost); len(before) != want {
			t.Fatalf("of %d endpoints %d are checked, want %d", endpoints, len(before), want)
		}
		for gone := range all.Endpoints {
			fewer := table.Tier{Endpoints: slices.Delete(slices.Clone(all.Endpoints), gone, gone+1)}
			after, changed := checked(fewer), 0
			for _, e := range fewer.Endpoints {
				if address := e.Address.Addr().String(); before[address] != after[address] {
					changed++
				}
			}
			if changed > 1 {
				t.Fatalf("one of %d endpoints went, and %d others changed", endpoints, changed)
			}
		}
	}
	zones := map[string]bool{}
	many := tier(300)
	for address := range checked(many) {
		for _, e := range many.Endpoints {
			if e.Address.Addr().String() == address {
				zones[e.Zone] = true
			}
		}
	}
	if len(zones) != 3 {
		t.Errorf("checked in zones %v, want in all three", zones)
	}
}
