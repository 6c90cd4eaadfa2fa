package report

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"spillway.dev/relay/internal/table"
)

// TestHeartbeatNamesRelayAndEnvoys checks that a heartbeat names its relay, and each of its Envoys
// by a hash that is the same in every relay, whatever their order.
func TestHeartbeatNamesRelayAndEnvoys(t *testing.T) {
	now := time.Now()
	one := NewHeartbeat("north", "relay-0", 7, time.Hour, map[string][]string{"web": {"north/web/a", "north/web/b"}, "cart": {"north/cart/a"}}, nil, now)
	other := NewHeartbeat("north", "relay-1", 7, 0, map[string][]string{"web": {"north/web/b", "north/web/a"}}, nil, now)
	if one.GetRelay() != "relay-0" || one.GetServices()[0].GetService() != "cart" || one.GetServices()[1].GetConnectedEnvoys() != 2 {
		t.Errorf("%v", one)
	}
	if one.GetHoldSeconds() != 3600 || other.HoldSeconds == nil || other.GetHoldSeconds() != 0 {
		t.Errorf("hold_seconds %v and %v, want 3600 and 0", one.HoldSeconds, other.HoldSeconds)
	}
	if web := one.GetServices()[1].GetEnvoys(); len(web) != 2 || !slices.Equal(web, other.GetServices()[0].GetEnvoys()) {
		t.Errorf("%x and %x, want the same two", web, other.GetServices()[0].GetEnvoys())
	}
	const fnv1a = 0x1346f0ff // of "north/cart/a"
	if got := one.GetServices()[0].GetEnvoys(); !slices.Equal(got, []uint32{fnv1a}) {
		t.Errorf("%x, want %x", got, fnv1a)
	}
}

// TestHeartbeatBoundsNames checks that the number of named Envoys is bounded, and that the reported
// count of connected Envoys is not.
func TestHeartbeatBoundsNames(t *testing.T) {
	placed := map[string][]string{"z": {"north/z/a"}}
	for i := range mostNamed {
		placed["web"] = append(placed["web"], fmt.Sprint("north/web/", i))
	}
	services := NewHeartbeat("north", "relay-0", 0, 0, placed, nil, time.Now()).GetServices()
	named := len(services[0].GetEnvoys()) + len(services[1].GetEnvoys())
	if named != mostNamed || services[0].GetConnectedEnvoys() < mostNamed-50 {
		t.Errorf("%d named, %d and %d connected", named, services[0].GetConnectedEnvoys(), services[1].GetConnectedEnvoys())
	}
}

// TestHeartbeatSaysWhichPodsAreReady checks that unknown pods are absent, and that none that are
// ready is a zero.
func TestHeartbeatSaysWhichPodsAreReady(t *testing.T) {
	placed := map[string][]string{"cart": {"north/cart/a"}, "web": {"north/web/a"}}
	ready := map[string]table.Readiness{"web": {Pods: 4}, "away": {Pods: 1, Ready: 1}}
	services := NewHeartbeat("north", "relay-0", 0, 0, placed, ready, time.Now()).GetServices()
	if cart := services[0]; cart.Pods != nil || cart.ReadyPods != nil {
		t.Errorf("%v, want no pods", cart)
	}
	if web := services[1]; web.GetPods() != 4 || web.ReadyPods == nil || web.GetReadyPods() != 0 {
		t.Errorf("%v, want 4 pods, and 0 that are ready", web)
	}
	if len(services) != 2 {
		t.Errorf("%d services, want those with Envoys", len(services))
	}
}
