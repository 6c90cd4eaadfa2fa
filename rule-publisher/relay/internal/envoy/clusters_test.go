package envoy

import (
	"net/netip"
	"testing"
	"time"

	"spillway.dev/relay/internal/table"
)

// The time for a connection grows with the round trip, is enough for the farthest cluster that it may
// fail over to, and never takes the time of the other attempts.
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

// Only a few endpoints are checked for one service in one other cluster; many are pods, of which none is checked.
func TestChecksAreFew(t *testing.T) {
	for endpoints, want := range map[int]bool{1: true, checkedMost: true, checkedMost + 1: false} {
		tier := table.Tier{Cluster: "south", Endpoints: make([]table.Endpoint, endpoints)}
		for i := range tier.Endpoints {
			tier.Endpoints[i].Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)
		}
		for _, locality := range newAssignment("shop|south", []table.Tier{tier}, true).GetEndpoints() {
			for _, e := range locality.GetLbEndpoints() {
				if got := !e.GetEndpoint().GetHealthCheckConfig().GetDisableActiveHealthCheck(); got != want {
					t.Fatalf("%d endpoints: checked is %t", endpoints, got)
				}
			}
		}
	}
}
