package table

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestDeclaredNamesDifferInMoreThanCase checks that two declared services whose names differ only
// in case are refused, also in different clusters, because Envoy does not distinguish them.
func TestDeclaredNamesDifferInMoreThanCase(t *testing.T) {
	_, err := NewNetwork("a", topology(), endpoints(at("shop", "a", "10.0.0.1:80"), at("shop", "b", "10.0.0.2:80"), at("Shop", "c", "10.0.0.3:80")), nil)
	if err == nil || !strings.Contains(err.Error(), `endpoints services[2].service: "Shop" is listed as "shop" too`) || strings.Contains(err.Error(), "services[1]") {
		t.Errorf("error %v", err)
	}
}

// TestFoundNamesDifferInMoreThanCase checks that a found name that equals a declared one except for
// case is dropped and reported. Of several undeclared spellings, only the lower-case one stays.
// Other names are not affected.
func TestFoundNamesDifferInMoreThanCase(t *testing.T) {
	one := []Endpoint{{Address: netip.MustParseAddrPort("10.0.0.9:80")}}
	found := Found{{"shop", "b"}: one, {"Cart", "a"}: one, {"cart", "b"}: one, {"CART", "c"}: one, {"Till", "a"}: one}
	n, err := NewNetwork("a", topology(), endpoints(at("SHOP", "a", "10.0.0.1:80")), found)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Services(); !slices.Equal(got, []string{"SHOP", "Till", "cart"}) {
		t.Errorf("services %v", got)
	}
	if len(n.Unreachable) != 3 || !strings.Contains(strings.Join(n.Unreachable, ";"), "Cart in a: cart is a service") {
		t.Errorf("left out: %q", n.Unreachable)
	}
	if len(found) != 5 {
		t.Error("what was found is changed")
	}
}
